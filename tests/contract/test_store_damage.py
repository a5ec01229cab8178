"""Damage is found before it is built from, and `repair` takes away all that leads to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprobuild.adapters.store import durable, shards
from reprobuild.adapters.store import verify as verify_module
from reprobuild.adapters.store.dirstack import remove_tree
from reprobuild.adapters.store.hashing import content_problem
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import decode, encode
from reprobuild.core.tree import File
from support.stores import blob_path, flip, overwrite, put, recorded, refused, tree_of, tree_path

# -- what was made by an earlier run -------------------------------------------------------------


def made_before(tmp_path: Path) -> tuple[Path, Digest, File]:
    """A store in which another object has made a tree: one file linked, the other copied."""
    with LocalStore.open(tmp_path / "store", create=True) as store:
        tree = tree_of(store, "one", "two", below=tree_of(store, "one"))
        store.barrier()
        return store.materialise(tree), tree, put(store, b"one")


def test_a_damaged_blob_is_not_built_from(tmp_path: Path) -> None:
    made, tree, one = made_before(tmp_path)
    with LocalStore.open(tmp_path / "store") as store:
        assert store.materialise(tree) == made
        flip(blob_path(store, one.digest))
    for _ in range(2):  # a second run must not find what the first one left
        with LocalStore.open(tmp_path / "store") as store:
            error = refused("E-STORE-DAMAGED", lambda: store.materialise(tree))
            assert one.digest.hex in error.message
            assert not made.exists()


@pytest.mark.parametrize("damage", ["content", "mode", "time", "link", "more", "less"])
def test_a_damaged_directory_is_made_again(tmp_path: Path, damage: str) -> None:
    made, tree, _ = made_before(tmp_path)
    copied = next(p for p in (made / "one", made / "below" / "one") if p.stat().st_nlink == 1)
    made.chmod(0o755)
    copied.parent.chmod(0o755)
    if damage == "content":
        flip(copied)
    elif damage == "mode":
        copied.chmod(0o555)
    elif damage == "time":
        os.utime(copied, ns=(1, 1))
    elif damage == "link":
        copied.unlink()
        copied.symlink_to("two")
    elif damage == "more":
        (made / "three").write_bytes(b"3")
    else:
        copied.unlink()
    for directory in (made, made / "below"):
        directory.chmod(0o555)
        os.utime(directory, ns=(durable.EPOCH_NS, durable.EPOCH_NS))
    with LocalStore.open(tmp_path / "store") as store:
        assert store.materialise(tree) == made
        assert (made / "below" / "one").read_bytes() == b"one"
        assert sorted(p.name for p in made.iterdir()) == ["below", "one", "two"]
        assert store.verify().problems == []


def test_a_materialised_file_is_looked_at(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        file = put(store, b"content", executable=True)
        other = put(store, b"content")
        made = store.materialise_blob(file.digest, executable=True)
        plain = store.materialise_blob(other.digest, executable=False)
    made.unlink()
    made.write_bytes(b"contenT")
    with LocalStore.open(tmp_path / "store") as store:
        assert store.materialise_blob(file.digest, executable=True).read_bytes() == b"content"
        flip(plain)  # the very blob
        refused("E-STORE-DAMAGED", lambda: put(store, b"content"))
    with LocalStore.open(tmp_path / "store") as store:
        refused("E-STORE-DAMAGED", lambda: store.materialise_blob(other.digest, executable=False))


def test_what_did_not_move_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, tree, one = made_before(tmp_path)
    monkeypatch.setattr("reprobuild.adapters.store.made._SETTLED_NS", -(10**12))
    looked: list[str] = []

    def count(path: str, hex_digest: str) -> str:
        looked.append(hex_digest)
        return content_problem(path, hex_digest)

    monkeypatch.setattr("reprobuild.adapters.store.made.content_problem", count)
    for expected in (3, 3):  # by the first process; then the fingerprint says enough
        with LocalStore.open(tmp_path / "store") as store:
            assert store.materialise(tree) == made
            assert store.materialise(tree) == made
        assert len(looked) == expected
    flip(made / "one")
    with LocalStore.open(tmp_path / "store") as store:
        if (made / "one").stat().st_nlink == 2:
            refused("E-STORE-DAMAGED", lambda: store.materialise(tree))
        else:
            store.materialise(tree)
    assert len(looked) > 3
    assert one.digest.hex in looked


def test_a_rebuild_does_not_confirm_a_damaged_object(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"content")
    with LocalStore.open(tmp_path / "store", create=True) as store:
        tree = store.capture(source)
        store.barrier()
        file = put(store, b"content")
        flip(blob_path(store, file.digest))
    with LocalStore.open(tmp_path / "store") as store:
        refused("E-STORE-DAMAGED", lambda: store.capture(source))
        refused("E-STORE-DAMAGED", lambda: put(store, b"content"))
        flip(blob_path(store, file.digest))
        assert store.capture(source) == tree
        flip(tree_path(store, tree))
    with LocalStore.open(tmp_path / "store") as store:
        refused("E-STORE-DAMAGED", lambda: store.capture(source))


def test_a_blob_that_was_written_to_is_read_before_it_counts_as_present(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        file = put(store, b"content")
        store.barrier()
    with LocalStore.open(tmp_path / "store") as store:
        os.utime(blob_path(store, file.digest))
        assert store.has_blob(file)
    with LocalStore.open(tmp_path / "store") as store:
        overwrite(blob_path(store, file.digest), b"CONTENT")
        os.utime(blob_path(store, file.digest))
        refused("E-STORE-DAMAGED", lambda: store.has_blob(file))


# -- repair --------------------------------------------------------------------------------------


class Filled:
    """Two recorded trees; the first's lowest directory and file are the second's in no way."""

    def __init__(self, store: LocalStore) -> None:
        self.inner = tree_of(store, "one")
        self.outer = tree_of(store, "two", below=self.inner)
        self.good = tree_of(store, "two", "three")
        store.barrier()
        self.bad_record = recorded(store, "bad", self.outer)
        self.good_record = recorded(store, "good", self.good)
        both = (self.bad_record, self.good_record)
        keep = {
            "drvs": sorted(r.drv.hex for r in both),
            "records": sorted(f"{r.action.hex}/{r.digest.hex}" for r in both),
            "trees": sorted([self.outer.hex, self.good.hex]),
        }
        self.both = encode({"keep": keep, "more": "words"})
        store.set_root("both", self.both)
        store.set_root("both=result", encode({"keep": {"trees": [self.outer.hex]}}))
        store.set_root("good", encode({"keep": {"trees": [self.good.hex]}}))
        self.made = store.materialise(self.outer)
        self.made_good = store.materialise(self.good)

    def again(self, store: LocalStore) -> None:
        """What the next run would do."""
        assert tree_of(store, "two", below=tree_of(store, "one")) == self.outer
        store.barrier()
        assert recorded(store, "bad", self.outer) == self.bad_record
        assert (store.materialise(self.outer) / "below" / "one").read_bytes() == b"one"


def forget_made(store: LocalStore) -> None:
    """No directory is left that content could be taken from."""
    for path in (store.path / "materialised").iterdir():
        remove_tree(str(path))


DAMAGES = ("blob", "tree", "blob gone", "tree gone")


@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_removes_what_leads_to_damage_and_nothing_else(tmp_path: Path, damage: str) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        world = Filled(store)
        blob = damage.startswith("blob")
        digest = Digest.of(b"one") if blob else world.inner
        path = blob_path(store, digest) if blob else tree_path(store, digest)
        if damage.endswith("gone"):
            path.unlink()
        else:
            flip(path)
        forget_made(store)
    with LocalStore.open(tmp_path / "store") as store:
        assert store.verify().problems
        done = store.repair()
        assert store.verify().problems == []
        removed = [] if damage.endswith("gone") else [digest.hex]
        assert (done.blobs, done.trees) == ((removed, []) if blob else ([], removed))
        assert set(done.incomplete) == {world.outer.hex, *([world.inner.hex] if blob else [])}
        assert done.records == [world.bad_record.digest.hex]
        assert done.memos == [world.bad_record.drv.hex]
        assert done.roots == ["both", "both=result"]
        assert [r.name for r in done.lost] == ["bad"] and set(done.cut) == {"both"}
        assert not done.restored and not done.materialised
        assert not done.drvs and not done.left
        assert not store.contains(world.outer) and store.realized(world.bad_record.drv) is None
        assert store.realized(world.good_record.drv) == world.good_record
        assert store.root("both=result") is None
        document = decode(store.root("both") or b"")
        assert isinstance(document, dict) and document["more"] == "words"
        assert document["keep"] == {
            "drvs": sorted([world.bad_record.drv.hex, world.good_record.drv.hex]),
            "records": [f"{world.good_record.action.hex}/{world.good_record.digest.hex}"],
            "trees": [world.good.hex],
        }
        store.gc(dry_run=True)  # every root can be followed again
        repaired = done
    with LocalStore.open(tmp_path / "store") as store:
        with store.lease():
            store.readmit(repaired)
            assert store.realized(world.bad_record.drv) is None  # its content is not here yet
            assert tree_of(store, "two", below=tree_of(store, "one")) == world.outer
            store.barrier()
            store.readmit(repaired)
        assert store.realized(world.bad_record.drv) == world.bad_record
        assert store.root("both") == world.both
        world.again(store)
        assert store.verify().problems == []
        assert store.repair() == type(done)()


@pytest.mark.parametrize("damage", ["tree", "tree gone", "top gone"])
def test_a_directory_node_is_told_from_what_was_made_of_it(tmp_path: Path, damage: str) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        world = Filled(store)
        path = tree_path(store, world.outer if damage == "top gone" else world.inner)
        path.unlink() if damage.endswith("gone") else flip(path)
    with LocalStore.open(tmp_path / "store") as store:
        done = store.repair()
        assert done.restored == [f"tree {path.name}"]
        assert not done.records and not done.roots and not done.lost
        assert store.verify().problems == []
        assert store.root("both") == world.both
        assert (store.materialise(world.outer) / "below" / "one").read_bytes() == b"one"


def test_a_node_is_not_told_from_a_directory_that_was_changed(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        world = Filled(store)
        tree_path(store, world.outer).unlink()
        changed = world.made / "two"
        changed.parent.chmod(0o755)
        changed.unlink()
        changed.write_bytes(b"TWO")
    with LocalStore.open(tmp_path / "store") as store:
        done = store.repair()
        assert not done.restored and [r.name for r in done.lost] == ["bad"]
        assert not store.contains(world.outer) and store.verify().problems == []


def test_a_blob_is_taken_from_its_twin_or_a_copy(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        world = Filled(store)
        put(store, b"one", executable=True)
        store.barrier()
        gone = [Digest.of(n) for n in (b"one", b"two")]
        flip(blob_path(store, gone[0]))
        blob_path(store, gone[1]).unlink()  # one of two made directories has a copy
    with LocalStore.open(tmp_path / "store") as store:
        done = store.repair()
        assert done.restored == sorted(f"blob {d.hex}" for d in gone)
        assert not done.records and not done.lost and not done.blobs
        assert store.verify().problems == []
        for tree in (world.outer, world.good):
            assert (store.materialise(tree) / "two").read_bytes() == b"two"


def test_content_is_taken_from_another_store_if_it_is_good_there(tmp_path: Path) -> None:
    stores = [LocalStore.open(tmp_path / name, create=True) for name in ("store", "other", "bad")]
    for store in stores:
        world = Filled(store)
        forget_made(store)
    flip(blob_path(stores[2], Digest.of(b"one")))
    for place in (tree_path(stores[0], world.inner), tree_path(stores[0], world.outer)):
        place.unlink()
    flip(blob_path(stores[0], Digest.of(b"one")))
    for store in stores:
        store.close()
    with (
        LocalStore.open(tmp_path / "store") as store,
        LocalStore.open(tmp_path / "bad") as bad,
        LocalStore.open(tmp_path / "other") as other,
    ):
        done = store.repair(others=[bad, other])
        assert len(done.restored) == 3 and not done.lost
        assert store.verify().problems == []
        world.again(store)


def test_repair_of_documents_modes_and_strangers(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        world = Filled(store)
        record = store.path / "records" / world.good_record.action.hex
        flip(record / world.good_record.digest.hex)
        drv = world.bad_record.drv.hex
        flip(store.path / "drvs" / drv[:2] / drv)
        (store.path / "roots" / "off").write_bytes(b"{")
        blob_path(store, Digest.of(b"two")).chmod(0o644)
        os.utime(tree_path(store, world.good))
        stranger = store.path / "blobs" / "notes.txt"
        stranger.write_text("mine")
    with LocalStore.open(tmp_path / "store") as store:
        done = store.repair()
        assert done.records == [world.good_record.digest.hex]
        assert done.memos == [world.good_record.drv.hex] and done.drvs == [drv]
        assert done.roots == ["both", "off"]
        assert done.modes == [Digest.of(b"two").hex]
        assert len(done.left) == 1 and "notes.txt" in done.left[0] and stranger.exists()
        assert store.contains(world.good) and store.contains(world.outer)
        stranger.unlink()
        assert store.verify().problems == []


def test_repair_waits_for_nobody_to_use_the_store(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        world = Filled(store)
        flip(blob_path(store, Digest.of(b"one")))
        with store.lease():
            refused("E-STORE-BUSY", store.repair)
        assert store.contains(world.outer)


# -- copied about --------------------------------------------------------------------------------


def test_a_copy_that_lost_its_empty_directories_is_a_store(tmp_path: Path) -> None:
    """As an archive or a bucket gives it back, or an earlier version of the format left it."""
    with LocalStore.open(tmp_path / "store", create=True) as store:
        world = Filled(store)
        forget_made(store)
        store.gc()
    for name in ("locks", "tmp", "materialised", "build", "cache", "logs", "quarantine"):
        for path in sorted((store.path / name).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        if (store.path / name).exists():
            (store.path / name).rmdir()
    (store.path / "reserve").unlink()
    with LocalStore.open(tmp_path / "store", create=True) as store:
        assert store.verify().problems == []
        assert (store.materialise(world.outer) / "two").read_bytes() == b"two"
        with store.lease(), store.lock_action(Digest.of(b"a")):
            put(store, b"new")
            store.barrier()
            store.set_root("again", encode({"keep": {"trees": [world.good.hex]}}))
        store.gc()
        assert store.repair() == type(store.repair())()
        assert store.realized(world.good_record.drv) == world.good_record
        assert store.verify().problems == []


def test_what_goes_while_verify_looks_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        Filled(store)
        real = shards.listing

        def listing(directory: str) -> list[os.DirEntry[str]]:
            found = real(directory)
            if directory.endswith("/roots"):
                store.remove_root("good")
            return found

        monkeypatch.setattr(verify_module, "listing", listing)
        assert store.verify().problems == []
        flip(store.path / "roots" / "both")
        assert [p.kind for p in store.verify().problems] == ["damaged"]


def test_verification_writes_nothing(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        Filled(store)
        for kind in ("blobs", "trees"):
            for path in (store.path / kind).rglob("*"):
                if path.is_file():  # as a new one has it: nothing has read it yet
                    os.utime(path, ns=(durable.EPOCH_NS, path.stat().st_mtime_ns))
        before = {p: p.lstat() for p in sorted(store.path.rglob("*")) if p.is_file()}
        assert store.verify().problems == []
        for path, info in before.items():
            now = path.lstat()
            if "blobs" in path.parts or "trees" in path.parts:
                assert now.st_atime_ns == info.st_atime_ns, path
            assert (now.st_mtime_ns, now.st_ctime_ns) == (info.st_mtime_ns, info.st_ctime_ns)
