"""containerd, which newer Docker engines keep their images in, takes what we save, as it is."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.delivery import Images
from support.containerd import Ctr
from support.images import image, layer
from support.unpacked import check_unpacked, over_base

pytestmark = pytest.mark.docker

PLACES = {"demo:1": "docker.io/library/demo:1", "example.org/a/b:v2": "example.org/a/b:v2"}


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def digests(text: str) -> set[str]:
    return set(re.findall(r"sha256:[0-9a-f]{64}", text))


@contextmanager
def unpacked(ctr: Ctr, name: str, at: Path) -> Iterator[Path]:
    """The root file system as containerd makes it."""
    at.mkdir()
    ctr("image", "mount", "--snapshotter", ctr.snapshotter, name, at)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
        ctr("image", "unmount", "--snapshotter", ctr.snapshotter, "--rm", at)


@pytest.mark.parametrize("form", ["archive", "oci-archive"])
@pytest.mark.parametrize("reference", sorted(PLACES))
def test_it_is_imported_as_it_is(
    store: MemoryStore,
    ctr: Ctr,
    tmp_path: Path,
    form: str,
    reference: str,
) -> None:
    layout = store.materialise(over_base(store))
    facts = Images().save(layout, tmp_path / "image.tar", form=form, reference=reference)
    name = PLACES[reference]
    words = ["image", "import", "--snapshotter", ctr.snapshotter, "--digests"]
    ctr(*words, tmp_path / "image.tar")
    try:
        row = next(r for r in ctr("image", "ls").splitlines() if r.split()[0] == name)
        assert digests(row) == {str(facts.manifest_digest)}
        held = digests(ctr("content", "ls", "-q"))
        assert {str(facts.config_digest), *(str(la.digest) for la in facts.layers)} <= held
        if os.geteuid() == 0:
            with unpacked(ctr, name, tmp_path / "root") as root:
                check_unpacked(layout, root)
        ctr("image", "export", tmp_path / "out.tar", name)
        again = Images().verify(tmp_path / "out.tar").facts
        assert (again.manifest_digest, again.config_digest) == (
            facts.manifest_digest,
            facts.config_digest,
        )
    finally:
        ctr("image", "rm", "--sync", *[r for r in ctr("image", "ls", "-q").splitlines() if r])


def test_zstd_layers(store: MemoryStore, ctr: Ctr, tmp_path: Path) -> None:
    made = layer(store, {"a/b": b"content" * 9000}, compression="zstd")
    layout = store.materialise(image(store, {"one": made}))
    facts = Images().save(layout, tmp_path / "z.tar", reference="zstd:1")
    ctr("image", "import", "--snapshotter", ctr.snapshotter, tmp_path / "z.tar")
    assert str(facts.manifest_digest) in digests(ctr("image", "ls"))
    with unpacked(ctr, "docker.io/library/zstd:1", tmp_path / "root") as root:
        assert (root / "a/b").read_bytes() == b"content" * 9000
