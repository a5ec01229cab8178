"""Other people's tools accept the image and find in it what was put there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.archive import write_archive
from reprobuild.adapters.oci.layout import open_layout
from reprobuild.adapters.oci.storelayout import read_image
from reprobuild.adapters.store.store import LocalStore
from support.images import REFERENCE, quick_image
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


@needs_umoci
def test_umoci_unpacks_it(store: MemoryStore, tmp_path: Path) -> None:
    path = store.materialise(quick_image(store))
    layout = tmp_path / "layout"
    shutil.copytree(path, layout)  # umoci wants to lock it
    for part in (layout, *layout.rglob("*")):
        part.chmod(0o755 if part.is_dir() else 0o644)
    run("umoci", "unpack", "--rootless", "--image", f"{layout}:{REFERENCE}", tmp_path / "out")
    root = tmp_path / "out/rootfs"
    found = listing(store, store.capture(root))
    assert found["usr/bin/tool"] == (b"#!/bin/sh\necho tool\n", True)
    assert found["lib"] == "usr/lib"
    assert found["usr/lib/python3/dist-packages/demo.py"] == b"print(1)\n"
    assert found["opt/demo/" + "ä" * 60] == b"long"
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_the_real_store_gives_the_same_image(store: MemoryStore, tmp_path: Path) -> None:
    local = LocalStore.open(tmp_path / "local", create=True)
    try:
        assert quick_image(local) == quick_image(store)
    finally:
        local.close()
