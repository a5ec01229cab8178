"""The store under fire: killed, starved and cut short at every single file operation."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.store import blobs, capture, seen, shelf
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, Symlink, Tree
from reprobuild.errors import ReprobuildError
from support.faults import Faults, Killed, PowerModel

DRV = Derivation(name="thing", builder="builtin:join", params={})
ACTION = Digest.of(b"action")


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few bytes take the way of large content."""
    for module in (blobs, capture, shelf):
        monkeypatch.setattr(module, "IN_MEMORY", 64)
        monkeypatch.setattr(module, "CHUNK", 32, raising=False)
    monkeypatch.setattr(seen, "_TICK_NS", -(2**62))  # what was seen is written down at once


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had: a thousand stores are made, and nothing waits for a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "one").write_bytes(b"one")
    (top / "a" / "b" / "twin").write_bytes(b"one")
    (top / "a" / "b" / "large").write_bytes(bytes(range(200)))
    (top / "run").write_bytes(b"#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("a/one")
    return top


class Session:
    """One process' use of the store, from opening it to collecting."""

    def __init__(self, path: Path, source: Path) -> None:
        self.path = path
        self.source = source
        self.store: LocalStore | None = None
        self.tree: Digest | None = None

    def run(self) -> None:
        self.store = store = LocalStore.open(self.path, create=True)
        with store.lease(), store.lock_action(ACTION):
            file = store.add_blob(io.BytesIO(b"some content"))
            store.add_blob(io.BytesIO(bytes(100)), executable=True)
            inner = Tree.of({b"f": file, b"l": Symlink(b"f")})
            outer = Tree.of({b"d": Directory(inner.digest)})
            store.add_trees({outer.digest: outer, inner.digest: inner})
            self.tree = tree = store.capture(self.source)
            store.barrier()
            store.add_derivations({DRV.digest: encode(DRV.document())})
            record = Record(ACTION, DRV.digest, {"out": tree}, name="thing")
            store.add_record(record)
            store.choose(DRV.digest, record)
            keep = {
                "drvs": [DRV.digest.hex],
                "records": [f"{ACTION.hex}/{record.digest.hex}"],
                "trees": [tree.hex],
            }
            store.set_root("output", encode({"keep": keep}))
            store.materialise(tree)
            store.materialise(inner.digest)
            store.materialise_blob(file.digest, executable=False)
        store.gc()

    def die(self) -> None:
        """What the kernel does for a killed process: its descriptors, and so its locks, go."""
        if self.store is not None:
            for fd in (self.store._staging._session_fd, self.store._staging._root_fd):
                if fd >= 0:
                    os.close(fd)


def check(path: Path, source: Path) -> None:
    """The oracle: nothing is off, the rerun completes, and leaves exactly what a clean run does."""
    if (path / "format").exists():
        with LocalStore.open(path) as store:
            assert store.verify(jobs=1).problems == []
    session = Session(path, source)
    session.run()
    assert session.store is not None and session.tree is not None
    with session.store as store:
        assert store.verify(jobs=1).problems == []
        assert store.root("output") is not None
        found = store.realized(DRV.digest)
        assert found is not None and found.outputs == {"out": session.tree}
        assert [e for e in os.listdir(path / "materialised") if e.startswith(".")] == []
        for pending in (path / "tmp").iterdir():
            assert pending.is_dir() and list(pending.iterdir()) == []
        assert os.listdir(path / "locks") == ["store"]


@pytest.fixture
def operations(tmp_path: Path, source: Path, faults: Faults) -> int:
    """How many operations a clean run takes."""
    faults.arm(0, "kill")
    session = Session(tmp_path / "clean", source)
    session.run()
    count = faults.count
    session.die()
    assert count > 100
    return count


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.mark.parametrize("what", ["kill", "kill-after"])
def test_killed_at_every_operation(
    tmp_path: Path, source: Path, faults: Faults, operations: int, what: str
) -> None:
    for at in range(1, operations + 1):
        path = tmp_path / f"{at}"
        session = Session(path, source)
        faults.arm(at, what)
        with pytest.raises(Killed):
            session.run()
        faults.disarm()
        session.die()
        check(path, source)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_refused_at_every_operation(
    tmp_path: Path, source: Path, faults: Faults, operations: int, number: int
) -> None:
    refused = 0
    # Two of them at every point; the others differ only in the number, so a part will do.
    step = 1 if number in (errno.ENOSPC, errno.EIO) else 7
    for at in range(1, operations + 1, step):
        path = tmp_path / f"{at}"
        session = Session(path, source)
        faults.arm(at, number)
        try:
            session.run()
        except ReprobuildError as error:
            refused += 1
            assert error.code == "E-STORE-WRITE", (at, faults.fired, error)
            assert error.exit_status == 10
            assert str(path) in str(error.facts["path"]), faults.fired
            assert error.facts["errno"] == errno.errorcode[number]
            assert ("free" in error.message) == (number != errno.EROFS)  # room is not the matter
        fired = faults.fired
        faults.disarm()
        if session.store is not None:
            session.store.close()
        if (path / "tmp").exists() and fired not in ("unlink", "rmdir"):
            assert list((path / "tmp").iterdir()) == [], (at, fired)
        check(path, source)
    assert refused > operations // step * 0.8


def test_short_writes_are_completed(tmp_path: Path, source: Path, faults: Faults) -> None:
    faults.arm(0, "short")
    session = Session(tmp_path / "short", source)
    session.run()
    faults.disarm()
    session.die()
    check(tmp_path / "short", source)


def test_after_a_failed_barrier_nothing_more_is_taken(tmp_path: Path, faults: Faults) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        store.add_blob(io.BytesIO(b"content"))
        faults.arm(1, errno.EIO)
        with pytest.raises(ReprobuildError):
            store.barrier()
        faults.disarm()
        for again in (store.barrier, lambda: store.add_blob(io.BytesIO(b"other"))):
            with pytest.raises(ReprobuildError) as error:
                again()
            assert error.value.code == "E-STORE-WRITE"
    with LocalStore.open(tmp_path / "store") as store:
        assert store.verify().blobs == 0


@pytest.mark.parametrize("few", [0, 8, 10**6])
def test_nothing_is_named_before_it_is_durable(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    from reprobuild.adapters.store import durable

    monkeypatch.setattr(durable, "FEW", few)
    path = tmp_path / "store"
    model = PowerModel(monkeypatch, path)
    session = Session(path, source)
    session.run()
    session.die()
    assert model.violations == []
    kinds = {os.path.relpath(name, path).split("/")[0] for name in model.named}
    assert {"blobs", "trees", "drvs", "records", "roots", "materialised", "format"} <= kinds


def test_another_process_unsynced_names_join_the_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was only found present is durable after our barrier, too."""
    path = tmp_path / "store"
    with LocalStore.open(path, create=True) as first, LocalStore.open(path) as second:
        file = first.add_blob(io.BytesIO(b"shared"))
        tree = Tree.of({b"f": file})
        first.add_trees({tree.digest: tree})
        first.barrier()
        model = PowerModel(monkeypatch, path)
        names = {
            f"{path}/blobs/{file.digest.hex[:2]}/{file.digest.hex}",
            f"{path}/trees/{tree.digest.hex[:2]}/{tree.digest.hex}",
        }
        model._fresh |= names  # as if the other had been stopped before its last step
        second.add_blob(io.BytesIO(b"shared"))
        assert second.contains(tree.digest)
        assert model._fresh >= names
        second.barrier()
        assert not model._fresh & names
