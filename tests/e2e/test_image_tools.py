"""Other people's tools accept the image and find in it what was put there."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.archive import write_archive
from reprobuild.adapters.oci.layout import open_layout
from reprobuild.adapters.oci.storelayout import read_image
from reprobuild.adapters.store.store import LocalStore
from support.archives import tar_entry
from support.images import REFERENCE, foreign_image, image, layer, quick_image
from support.trees import listing

needs_skopeo = pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")
needs_umoci = pytest.mark.skipif(not shutil.which("umoci"), reason="umoci is not installed")


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def run(*words: str | Path) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_skopeo
def test_skopeo_reads_the_layout(store: MemoryStore) -> None:
    tree = quick_image(store)
    facts = read_image(store, tree)
    path = store.materialise(tree)
    for name in (f"oci:{path}", f"oci:{path}:{REFERENCE}"):
        seen = json.loads(run("skopeo", "inspect", name))
        assert seen["Digest"] == str(facts.manifest_digest)
        assert seen["Labels"] == dict(facts.labels)
        assert seen["Layers"] == [str(la.digest) for la in facts.layers]
    config = run("skopeo", "inspect", "--config", "--raw", f"oci:{path}")
    assert json.loads(config)["rootfs"]["diff_ids"] == [str(la.diff_id) for la in facts.layers]


@needs_skopeo
def test_skopeo_reads_the_archive_both_ways(store: MemoryStore, tmp_path: Path) -> None:
    tree = quick_image(store)
    with open_layout(store.materialise(tree)) as files:
        facts = read_image(store, tree)
        write_archive(files, facts, REFERENCE, tmp_path / "image.tar")
    seen = json.loads(run("skopeo", "inspect", f"oci-archive:{tmp_path}/image.tar"))
    assert seen["Digest"] == str(facts.manifest_digest)
    copy = tmp_path / "copy"
    run("skopeo", "copy", f"docker-archive:{tmp_path}/image.tar:{REFERENCE}", f"dir:{copy}")
    manifest = json.loads((copy / "manifest.json").read_text())
    assert manifest["config"]["digest"] == str(facts.config_digest)


def umoci_unpack(path: Path, tmp_path: Path) -> Path:
    """The root file system as umoci makes it."""
    layout = tmp_path / "layout"
    shutil.copytree(path, layout)  # umoci wants to lock it
    for part in (layout, *layout.rglob("*")):
        part.chmod(0o755 if part.is_dir() else 0o644)
    run("umoci", "unpack", "--rootless", "--image", f"{layout}:{REFERENCE}", tmp_path / "out")
    return tmp_path / "out/rootfs"


@needs_umoci
def test_umoci_unpacks_it(store: MemoryStore, tmp_path: Path) -> None:
    root = umoci_unpack(store.materialise(quick_image(store)), tmp_path)
    found = listing(store, store.capture(root))
    assert found["usr/bin/tool"] == (b"#!/bin/sh\necho tool\n", True)
    assert found["lib"] == "usr/lib"
    assert found["usr/lib/python3/dist-packages/demo.py"] == b"print(1)\n"
    assert found["opt/demo/" + "ä" * 60] == b"long"
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777


@needs_umoci
def test_over_a_foreign_base(store: MemoryStore, tmp_path: Path) -> None:
    directory = tar_entry("srv", kind=tarfile.DIRTYPE, mode=0o2775)
    base = foreign_image(
        store,
        [
            [
                tar_entry("usr/lib/libc", b"c"),
                tar_entry("lib", kind=tarfile.SYMTYPE, link="usr/lib"),
                directory,
                tar_entry("gone", b"x"),
            ],
            [tar_entry(".wh.gone")],
        ],
    )
    own = layer(store, {"lib/python3/a.py": b"a", "srv/x": b"x"}, {"base-0": base})
    tree = image(store, {"own": own}, {"base-0": base})
    root = umoci_unpack(store.materialise(tree), tmp_path)
    found = listing(store, store.capture(root))
    assert found == {
        "lib": "usr/lib",
        "usr/lib/libc": b"c",
        "usr/lib/python3/a.py": b"a",
        "srv/x": b"x",
    }
    assert (root / "srv").stat().st_mode & 0o7777 == 0o2775


def test_the_real_store_gives_the_same_image(store: MemoryStore, tmp_path: Path) -> None:
    local = LocalStore.open(tmp_path / "local", create=True)
    try:
        assert quick_image(local) == quick_image(store)
    finally:
        local.close()
