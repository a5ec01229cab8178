"""A real daemon and registry: verified in place, pulled by digest, updates by layer alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.docker.push import RegistrySink
from reprobuild.adapters.docker.sink import DockerSink
from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.fetchers import file_fetchers
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.oci.storelayout import load_image, read_image
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Sha256
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.images import image, layer
from support.registry import running
from support.released import released

pytestmark = pytest.mark.docker


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def docker(host: str, *words: str) -> str:
    run = subprocess.run(
        ["docker", "-H", host, *words], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_verified_out_of_the_daemon(
    store: MemoryStore, docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    layout = store.materialise(released(store))
    DockerSink().put(layout, "example/demo:v1")
    with Images().from_daemon("example/demo:v1") as path:
        result = Images().verify(path, reference="example/demo:v1")
    assert result.facts.config_digest == Images().inspect(layout).config_digest
    assert (result.components, result.files) == (1, 6)
    with pytest.raises(ReprobuildError) as error, Images().from_daemon("no/such:1"):
        pass
    assert error.value.code == "E-IMAGE"


def test_a_daemons_image_is_a_base(
    store: MemoryStore, docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    layout = store.materialise(released(store))
    DockerSink().put(layout, "example/base:v1")
    settings = FetchSettings(tmp_path / "partial", attempts=1, backoff=0)
    reference = "docker-daemon:example/base:v1"
    digest = str(Discovery(settings).oci(reference, tmp_path))
    assert digest == str(Discovery(settings).oci(reference, tmp_path))
    fetcher = file_fetchers(store, settings, base=tmp_path)["oci"]
    fixed = FixedOutput("oci-image", sha256=Sha256.parse(digest))
    tree = fetcher.fetch(fixed, {"kind": "oci", "reference": reference}, Recorder())
    facts = load_image(store, tree).facts
    given = Images().inspect(layout)
    assert facts.config_digest == given.config_digest
    assert [la.diff_id for la in facts.layers] == [la.diff_id for la in given.layers]


def test_an_update_pulls_what_changed(
    store: MemoryStore, docker_host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = layer(store, {"big": bytes(range(256)) * 9000}, name="big")
    names = {"big": big, "small": layer(store, {"small": b"1"}, name="small")}
    first = image(store, names)
    second = image(store, {**names, "small": layer(store, {"small": b"2"}, name="small")})
    large = read_image(store, first).layers[0].digest.hex
    with running(tmp_path) as host:
        sink = RegistrySink(backoff=0)
        for tag, tree in (("1", first), ("2", second)):
            sink.put(store.materialise(tree), f"{host}/demo:{tag}")
        assert sink.put(store.materialise(second), f"{host}/demo:2")["sent"] == "0"
        for tree in (first, second):
            digest = read_image(store, tree).manifest_digest
            text = docker(docker_host, "pull", f"{host}/demo@{digest}")
            assert f"Digest: {digest}" in text
            # The second time, it could not be had any more.
            blobs = tmp_path / "data/docker/registry/v2/blobs/sha256"
            shutil.rmtree(blobs / large[:2] / large, ignore_errors=tree == second)
    changed = read_image(store, second).layers[1].size
    whole = sum(la.size for la in read_image(store, second).layers)
    with capsys.disabled():
        print(f"\nan update of one component pulls {changed} of {whole} bytes of layers")
