"""No room, or a process killed: nothing half-written or half-published; the next try completes.

Small file systems of memory stand for full disks: the registry's, the daemon's, and ours.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from fakes.memory_store import MemoryStore
from reprobuild.adapters.docker.push import RegistrySink
from reprobuild.adapters.docker.sink import DockerSink
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.oci.layout import blob_name, open_layout
from reprobuild.core.digest import Digest
from reprobuild.core.image import ImageFacts
from reprobuild.errors import ReprobuildError
from support import dockerd
from support.images import image, layer
from support.registry import running

SIZE = 12 * 2**20
SMALL = 8 * 2**20

MakeDisk = Callable[[str], Path]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


@pytest.fixture
def tree(store: MemoryStore) -> Digest:
    """An image of 12 MiB that do not compress, in four layers."""
    pieces = [
        b"".join(Digest.of(b"%d" % n).raw for n in range(at, at + SIZE // 128))
        for at in range(0, SIZE // 32, SIZE // 128)
    ]
    return image(store, {f"l{n}": layer(store, {f"f{n}": p}) for n, p in enumerate(pieces)})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Makes a disk of SMALL bytes at a name."""
    mounted: list[Path] = []

    def make(name: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr}")
        mounted.append(path)
        return path

    yield make
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


def grow(disk: Path) -> None:
    """There is room now."""
    subprocess.run(["mount", "-o", f"remount,size={8 * SMALL}", str(disk)], check=True)


def whole(host: str, facts: ImageFacts, tag: str = "1") -> bool:
    """Whether the registry has the image under the tag, every blob of it as it is."""
    there = requests.get(f"http://{host}/v2/x/manifests/{tag}", timeout=9, headers={
        "Accept": "application/vnd.oci.image.manifest.v1+json"})  # fmt: skip
    if there.headers.get("Docker-Content-Digest") != str(facts.manifest_digest):
        return False
    names = [facts.config_digest, *(la.digest for la in facts.layers)]
    got = [requests.get(f"http://{host}/v2/x/blobs/{name}", timeout=9).content for name in names]
    return [hashlib.sha256(data).hexdigest() for data in got] == [name.hex for name in names]


def test_a_registry_without_room(
    store: MemoryStore, tree: Digest, tmp_path: Path, disk: MakeDisk
) -> None:
    layout = store.materialise(tree)
    home = disk("registry")
    sink = RegistrySink(backoff=0, memory=tmp_path / "memory")
    with running(home) as host:
        with pytest.raises(ReprobuildError) as error:
            sink.put(layout, f"{host}/x:1")
        assert (error.value.code, error.value.exit_status) == ("E-REGISTRY", 10)
        assert requests.get(f"http://{host}/v2/x/tags/list", timeout=9).json().get("tags") is None
        grow(home)
        sink.put(layout, f"{host}/x:1")
        assert whole(host, Images().inspect(layout))


def test_nowhere_to_remember(
    store: MemoryStore, tree: Digest, tmp_path: Path, disk: MakeDisk
) -> None:
    """A push needs no room of its own."""
    layout = store.materialise(tree)
    full = disk("state")
    with (full / "filler").open("wb") as out, pytest.raises(OSError, match="No space"):
        out.write(bytes(2 * SMALL))
    with running(tmp_path) as host:
        RegistrySink(backoff=0, memory=full / "memory").put(layout, f"{host}/x:1")
        assert whole(host, Images().inspect(layout))


@pytest.mark.parametrize("form", ["archive", "oci-archive", "docker-archive", "oci-dir"])
def test_saving_onto_a_full_disk(
    store: MemoryStore, tree: Digest, disk: MakeDisk, form: str
) -> None:
    layout = store.materialise(tree)
    full = disk("full")
    with pytest.raises(ReprobuildError) as error:
        Images().save(layout, full / "image", form=form)
    assert (error.value.code, error.value.exit_status) == ("E-IMAGE-WRITE", 10)
    assert "No space left" in error.value.message
    assert list(full.iterdir()) == []
    grow(full)
    Images().save(layout, full / "image", form=form)
    assert Images().inspect(full / "image").config_digest == Images().inspect(layout).config_digest


@pytest.mark.docker
def test_a_daemon_without_room(
    store: MemoryStore, tree: Digest, disk: MakeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = dockerd.why_not()
    if reason:
        pytest.skip(reason)
    layout = store.materialise(tree)
    full = disk("docker")
    with dockerd.running("vfs", data=full) as host:
        if host is None:
            pytest.skip("dockerd is installed, but does not start here")
        sink = DockerSink(host)
        with pytest.raises(ReprobuildError) as error:
            sink.put(layout, "full/image:1")
        assert (error.value.code, error.value.exit_status) == ("E-DOCKER", 10)
        assert "no space left" in error.value.message
        with pytest.raises(ReprobuildError) as error:
            sink.inspect("full/image:1")
        assert error.value.code == "E-IMAGE"
        grow(full)
        sink.put(layout, "full/image:1")
        # Taking it out again, where there is no room for it here.
        small = disk("temporary")
        monkeypatch.setenv("DOCKER_HOST", host)
        monkeypatch.setattr("tempfile.tempdir", str(small))
        with pytest.raises(ReprobuildError) as error, Images().from_daemon("full/image:1"):
            pass
        assert (error.value.code, error.value.exit_status) == ("E-IMAGE-WRITE", 10)
        assert list(small.iterdir()) == []


def test_no_room_for_what_is_pulled(
    store: MemoryStore,
    tree: Digest,
    tmp_path: Path,
    disk: MakeDisk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = store.materialise(tree)
    with running(tmp_path) as host:
        RegistrySink(backoff=0).put(layout, f"{host}/x:1")
        small = disk("temporary")
        monkeypatch.setattr("tempfile.tempdir", str(small))
        with pytest.raises(ReprobuildError) as error, Images().from_registry(f"{host}/x:1"):
            pass
        assert error.value.exit_status == 10
        assert "No space left" in error.value.message
        assert list(small.iterdir()) == []
        grow(small)
        with Images().from_registry(f"{host}/x:1") as path:
            assert (
                Images().inspect(path).manifest_digest == Images().inspect(layout).manifest_digest
            )


PUSH = """\
import sys
from pathlib import Path
from reprobuild.adapters.docker.push import RegistrySink
sink = RegistrySink(memory=Path(sys.argv[3]), piece=2**18)
print(sink.put(Path(sys.argv[1]), sys.argv[2])["sent"])
"""


def _without_uploads(place: Path) -> None:
    """Removes open uploads, as the registry's own cleaning does in time; it may still be writing
    what the killed process had sent."""
    for _ in range(200):
        with suppress(OSError):
            shutil.rmtree(place)
        if not place.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{place} does not go away")


def test_a_killed_process_goes_on(store: MemoryStore, tree: Digest, tmp_path: Path) -> None:
    """SIGKILL in the middle of each of the first three layers: what had arrived whole stays.

    (docker-registry 2.8 forgets an upload that is cut inside a request, so the layer under way
    begins anew; that pieces are not sent again to others is in test_image_push_faults.py.)
    """
    layout = store.materialise(tree)
    facts = Images().inspect(layout)
    data = tmp_path / "data/docker/registry/v2"
    with running(tmp_path) as host:
        words = [sys.executable, "-c", PUSH, str(layout), f"{host}/x:1", str(tmp_path / "memory")]
        for done in range(3):
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            there = [data / f"blobs/sha256/{la.digest.hex[:2]}/{la.digest.hex}/data"
                     for la in facts.layers[:done]]  # fmt: skip
            while process.poll() is None and not (
                all(path.exists() for path in there)
                and any(p.stat().st_size > 2**18 for p in data.glob("**/_uploads/*/data"))
            ):
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert process.returncode == -signal.SIGKILL
            assert requests.get(f"http://{host}/v2/x/manifests/1", timeout=9).status_code == 404
            _without_uploads(data / "repositories/x/_uploads")
        last = subprocess.run(words, capture_output=True, text=True, check=True)
        assert whole(host, facts)
    config = facts.config_digest
    with open_layout(layout) as files:
        left = files.size(blob_name(config)) + sum(la.size for la in facts.layers[2:])
    assert int(last.stdout) <= left
