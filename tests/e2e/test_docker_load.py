"""A real daemon takes the image, keeps its identities, and runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.docker.sink import DockerSink, check_loaded
from reprobuild.adapters.oci.archive import write_archive, write_directory
from reprobuild.adapters.oci.layout import open_layout, read_layout
from reprobuild.adapters.oci.storelayout import read_image
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from support.hostfiles import program
from support.images import REFERENCE, image, layer
from support.trees import Given

pytestmark = pytest.mark.docker


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def runnable(store: MemoryStore) -> Digest:
    """dash over a merged /usr, and a second layer with a script, through the links beneath."""
    shell: dict[str, Given] = {"lib": "usr/lib", "lib64": "usr/lib64", "tmp": None}
    for path, value in program("dash", "usr/bin/sh").items():
        shell["usr/" + path.removeprefix("usr/")] = value
    base = layer(store, shell, name="shell", owners={"tmp": {"mode": "1777"}})
    script = b'#!/usr/bin/sh\nread line < /lib/demo/text\necho "$line $1 $A"\n'
    files: dict[str, Given] = {"lib/demo/text": b"hello\n", "opt/run": (script, True)}
    more = layer(store, files, {"below-0": base["tree"]}, name="demo")
    config: Value = {
        "entrypoint": ["/opt/run"],
        "cmd": ["from"],
        "env": {"A": "inside"},
        "labels": {"local-inference.demo.drv": "blake3:00"},
    }
    return image(store, {"shell": base, "demo": more}, config=config)


def docker(host: str, *words: str) -> str:
    run = subprocess.run(
        ["docker", "-H", host, *words], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_load_and_run(store: MemoryStore, docker_host: str) -> None:
    tree = runnable(store)
    facts = read_image(store, tree)
    answer = DockerSink(docker_host).put(store.materialise(tree), REFERENCE)
    assert answer["reference"] == REFERENCE
    assert answer["config_digest"] == str(facts.config_digest)
    inspected = json.loads(docker(docker_host, "image", "inspect", REFERENCE))[0]
    assert inspected["Id"] in (str(facts.config_digest), str(facts.manifest_digest))
    assert inspected["RootFS"]["Layers"] == [str(la.diff_id) for la in facts.layers]
    assert inspected["Config"]["Labels"] == dict(facts.labels)
    assert docker(docker_host, "run", "--rm", "--network=none", REFERENCE) == "hello from inside\n"
    listed = docker(
        docker_host, "run", "--rm", "--network=none", "--entrypoint=/usr/bin/sh", REFERENCE,
        "-c", "[ -k /tmp ] && [ -L /lib ] && echo good",
    )  # fmt: skip
    assert listed == "good\n"
    again = DockerSink(docker_host).put(store.materialise(tree), REFERENCE)
    assert again == answer


def test_the_saved_archive_loads_by_the_engines_own_command(
    store: MemoryStore,
    docker_host: str,
    tmp_path: Path,
) -> None:
    tree = runnable(store)
    with open_layout(store.materialise(tree)) as files:
        facts = read_layout(files)
        write_archive(files, facts, "saved/image:2", tmp_path / "image.tar")
    docker(docker_host, "load", "-i", str(tmp_path / "image.tar"))
    inspected = json.loads(docker(docker_host, "image", "inspect", "saved/image:2"))[0]
    check_loaded(facts, inspected)


def test_what_the_daemon_saves_is_the_same_image(
    store: MemoryStore,
    docker_host: str,
) -> None:
    tree = runnable(store)
    facts = read_image(store, tree)
    sink = DockerSink(docker_host)
    sink.put(store.materialise(tree), "same/image:1")
    check_loaded(facts, sink.inspect("same/image:1"))
    docker(docker_host, "image", "rm", "same/image:1")
    with pytest.raises(ReprobuildError) as error:
        sink.inspect("same/image:1")
    assert error.value.code == "E-IMAGE"


def test_a_damaged_layout_is_not_loaded(
    store: MemoryStore, docker_host: str, tmp_path: Path
) -> None:
    tree = runnable(store)
    facts = read_image(store, tree)
    bad = tmp_path / "bad"
    with open_layout(store.materialise(tree)) as files:
        write_directory(files, facts, REFERENCE, bad)
    blob = bad / f"blobs/sha256/{facts.layers[1].digest.hex}"
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 0xFF
    blob.write_bytes(data)
    sink = DockerSink(docker_host)
    with pytest.raises(ReprobuildError) as error:
        sink.put(bad, "bad/image:1")
    assert error.value.code == "E-IMAGE-VERIFY"
    with pytest.raises(ReprobuildError) as error:
        sink.inspect("bad/image:1")
    assert error.value.code == "E-IMAGE"
