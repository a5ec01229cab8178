"""A bundle read as a store: what it gives is what the store gives, and nothing unproven."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.diff.bundlestore import HELD_PIECES, BundleStore
from reprobuild.adapters.diff.world import is_bundle
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle import format as layout
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File
from reprobuild.engine.transfer import Held
from reprobuild.errors import ReprobuildError
from support.bundles import RESULT, Release, forged, make_release, write

LARGE = random.Random(0).randbytes(3 * layout.PIECE + 77)


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return make_release(tmp_path / "store", result={**RESULT, "large": LARGE, "zero": b""})


@pytest.fixture
def carried(release: Release, tmp_path: Path) -> Iterator[BundleStore]:
    path = tmp_path / "a.bundle"
    release.export(path)
    store = BundleStore(path)
    yield store
    store.close()


def read(store: BundleStore | LocalStore, digest: Digest, step: int = -1) -> bytes:
    with store.open_blob(digest) as source:
        if step < 0:
            return source.read()
        return b"".join(iter(lambda: source.read(step), b""))


def walk(store: BundleStore | LocalStore, tree: Digest) -> Iterator[tuple[Digest, File]]:
    """Every node with every file in it."""
    stack = [tree]
    while stack:
        digest = stack.pop()
        for _, entry in store.tree(digest):
            if isinstance(entry, Directory):
                stack.append(entry.digest)
            elif isinstance(entry, File):
                yield digest, entry


def test_it_gives_what_the_store_gives(release: Release, carried: BundleStore) -> None:
    store = release.store
    for tree in (carried.manifest.outputs["demo"].tree, release.project):
        assert carried.contains(tree)
        files = list(walk(carried, tree))
        assert files == list(walk(store, tree)) != []
        for node, file in files:
            assert carried.node(node) == store.node(node)
            assert carried.has_blob(file)
            assert read(carried, file.digest) == read(store, file.digest)
            assert read(carried, file.digest, 100_003) == read(store, file.digest)
    for drv in release.graph.nodes:
        assert carried.derivation(drv) == store.derivation(drv)
    record = store.realized(release.target.drv)
    assert record is not None
    assert carried.realized(release.target.drv) == record
    assert list(carried.records(record.action)) == [record]
    assert carried.expected()[release.target.drv.hex] == {"out": record.outputs["out"].hex}


def test_what_it_has_not(carried: BundleStore) -> None:
    nothing = Digest.of(b"nowhere")
    assert not carried.contains(nothing)
    assert not carried.has_blob(File(nothing, 7))
    assert carried.derivation(nothing) is None
    assert carried.realized(nothing) is None
    assert carried.records(nothing) == []
    for call in (carried.node, carried.tree, carried.open_blob):
        with pytest.raises(ReprobuildError) as caught:
            call(nothing)
        assert caught.value.code == "E-BUNDLE-INCOMPLETE"


def test_only_what_is_asked_for_is_unpacked(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bundle"
    release.export(path)
    unpacked: list[int] = []
    plain = BundleReader.piece

    def piece(self: BundleReader, number: int) -> bytes:
        unpacked.append(number)
        return plain(self, number)

    monkeypatch.setattr(BundleReader, "piece", piece)
    store = BundleStore(path)
    assert unpacked == []
    last = -(-store._starts[-1] // layout.PIECE) - 1
    assert last >= 3
    store.tree(store.manifest.outputs["demo"].tree)  # nodes come behind all blobs
    assert set(unpacked) == {last}
    for digest in (Digest.of(LARGE), Digest.of(LARGE)):
        assert read(store, digest) == LARGE
    assert len(store._pieces) <= HELD_PIECES
    store.close()


def test_a_store_behind_it_fills_a_delta(release: Release, tmp_path: Path) -> None:
    result = release.trees[-1]
    large = next(f for _, f in walk(release.store, result) if f.size == len(LARGE))
    path = tmp_path / "delta.bundle"
    shipment = release.plan(held=Held(trees=frozenset([release.trees[0]])))
    requires = replace(shipment.manifest.requires, trees=(release.trees[0],))
    less = [e for e in shipment.entries if e.digest != large.digest]
    write(path, replace(shipment, manifest=replace(shipment.manifest, requires=requires)),
          entries=less)  # fmt: skip
    alone = BundleStore(path)
    assert not alone.contains(result)
    assert alone.contains(release.project)
    over = BundleStore(path, release.store)
    assert over.contains(result)
    assert read(over, large.digest) == LARGE


KINDS = {
    layout.BLOB: "blob",
    layout.TREE: "tree",
    layout.DRV: "derivation",
    layout.RECORD: "record",
}


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_content_that_is_not_what_its_name_says(
    release: Release, tmp_path: Path, kind: bytes
) -> None:
    """Whoever made the bundle chose its digest over these bytes, so the pieces hold."""
    shipment = release.plan()
    entry = next(e for e in shipment.entries if e.kind == kind and e.size > 20)
    with shipment.open(entry) as source:
        data = bytearray(source.read())
    data[-20] ^= 1
    path = tmp_path / "forged.bundle"
    write(path, shipment, open_=forged(entry, bytes(data), shipment))
    store = BundleStore(path)
    with pytest.raises(ReprobuildError) as caught:
        if kind == layout.BLOB:
            read(store, entry.digest, 1000)
        elif kind == layout.TREE:
            store.tree(entry.digest)
        elif kind == layout.DRV:
            store.derivation(entry.digest)
        else:
            for drv in release.graph.nodes:
                store.realized(drv)
    assert caught.value.code == "E-BUNDLE"


def test_a_record_of_another_action_is_refused(release: Release, tmp_path: Path) -> None:
    shipment = release.plan()
    drv = release.target.drv
    name = shipment.manifest.chosen[drv].partition("/")[2]
    wrong = f"{Digest.of(b'other').hex}/{name}"
    path = tmp_path / "forged.bundle"
    chosen = {**shipment.manifest.chosen, drv: wrong}
    write(path, replace(shipment, manifest=replace(shipment.manifest, chosen=chosen)))
    with pytest.raises(ReprobuildError) as caught:
        BundleStore(path).realized(drv)
    assert caught.value.code == "E-BUNDLE"


def test_what_is_a_bundle(release: Release, tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    release.export(path)
    assert is_bundle(path)
    short = tmp_path / "short"
    short.write_bytes(b"reprobuild-bdl-0")
    assert not is_bundle(short)
    assert not is_bundle(tmp_path)
    assert not is_bundle(tmp_path / "absent")
