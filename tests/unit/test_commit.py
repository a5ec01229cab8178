"""Recording many builds with one trip to the disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, cast

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.core.tree import Tree
from reprobuild.engine import commit
from reprobuild.engine.commit import Committer, Made
from reprobuild.errors import ReprobuildError

EMPTY = Tree.of({})


def record(number: int) -> Record:
    return Record(
        action=Digest.of(b"action %d" % number),
        drv=Digest.of(b"drv %d" % number),
        outputs={"out": EMPTY.digest},
        isolation=Isolation.FULL,
        duration_ms=number,
        peak_memory=0,
        log="",
        name=f"n{number}",
        unenforced=(),
    )


class Store:
    """A memory store that notes what is asked of it, and waits or fails where it is told to."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.inner.add_trees({EMPTY.digest: EMPTY})
        self.calls: list[object] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.fail: BaseException | None = None

    def barrier(self) -> None:
        self.entered.set()
        assert self.gate.wait(20)
        if self.fail is not None:
            raise self.fail
        self.calls.append("barrier")
        self.inner.barrier()

    def add_records(self, records: Sequence[Record]) -> None:
        self.calls.append([r.duration_ms for r in records])
        self.inner.add_records(records)

    def choose(self, drv: Digest, chosen: Record) -> None:
        self.inner.choose(drv, chosen)


def committer(store: Store) -> Committer:
    return Committer(cast(Any, store), cast(Any, store))


def made(number: int, log: list[str], *, new: bool = True) -> Made:
    held = ExitStack()
    held.callback(log.append, f"released {number}")
    one = record(number)
    return Made(one.drv, one, new, held, lambda: log.append(f"recorded {number}"))


def test_all_is_on_record_when_the_run_ends() -> None:
    store, log = Store(), list[str]()
    with committer(store) as commits:
        for number in range(5):
            commits.put(made(number, log))
    for number in range(5):
        assert store.inner.realized(record(number).drv) == record(number)
        assert log.index(f"recorded {number}") < log.index(f"released {number}")


def test_what_is_to_be_done_first_is_done_before_anything_is_recorded() -> None:
    store, log = Store(), list[str]()
    gate = threading.Event()

    def first() -> None:
        assert gate.wait(20)
        store.calls.append("first")

    def wait() -> None:
        commits.ready()
        log.append("ready")

    waited = threading.Thread(target=wait)
    with Committer(cast(Any, store), cast(Any, store), first) as commits:
        commits.put(made(0, log))
        commits.hurry()
        waited.start()
        waited.join(0.1)
        assert (store.calls, log) == ([], [])
        gate.set()
        waited.join(20)
        assert "ready" in log
    assert store.calls == ["first", "barrier", [0]]


def test_where_what_is_to_be_done_first_fails_nothing_is_recorded() -> None:
    store, log = Store(), list[str]()

    def first() -> None:
        raise ReprobuildError("E-STORE-WRITE", "no room")

    commits = Committer(cast(Any, store), cast(Any, store), first)
    with pytest.raises(ReprobuildError, match="no room"), commits:
        with pytest.raises(ReprobuildError, match="no room"):
            commits.ready()
        with pytest.raises(ReprobuildError, match="no room"):
            commits.put(made(0, log))
        assert log == ["released 0"]
    assert store.calls == []


def test_what_is_to_be_done_first_is_done_though_nothing_is_recorded() -> None:
    store = Store()
    with Committer(cast(Any, store), cast(Any, store), lambda: store.calls.append("first")):
        pass
    assert store.calls == ["first"]


def test_what_comes_while_the_disk_is_busy_is_one_batch() -> None:
    store, log = Store(), list[str]()
    store.gate.clear()
    with committer(store) as commits:
        commits.put(made(0, log))
        assert store.entered.wait(20)
        for number in (1, 2, 3):
            commits.put(made(number, log))
        assert log == []
        store.gate.set()
    assert store.calls == ["barrier", [0], "barrier", [1, 2, 3]]


def test_quick_builds_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "GATHER", 10_000)
    store, log = Store(), list[str]()
    with committer(store) as commits:
        for number in range(5):
            commits.put(made(number, log))
    assert store.calls == ["barrier", [0, 1, 2, 3, 4]]


@pytest.mark.parametrize(("first", "many"), [(commit.QUICK_MS + 1, 64), (0, 3)])
def test_what_took_long_and_what_is_many_does_not_wait(
    first: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "GATHER", 10_000)
    monkeypatch.setattr(commit, "MANY", many)
    store, log = Store(), list[str]()
    with committer(store) as commits:
        for number in (1, 2, first):
            commits.put(made(number, log))
        assert store.entered.wait(20)
    assert store.calls == ["barrier", [1, 2, first]]


def test_a_record_that_stands_is_not_written_again() -> None:
    store, log = Store(), list[str]()
    store.inner.barrier()
    store.inner.add_record(record(1))
    with committer(store) as commits:
        commits.put(made(1, log, new=False))
    assert store.calls == ["barrier", []]
    assert store.inner.realized(record(1).drv) == record(1)


def test_a_failure_is_raised_at_the_end_and_everything_is_released() -> None:
    store, log = Store(), list[str]()
    store.fail = ReprobuildError("E-STORE-WRITE", "the disk is full")
    store.gate.clear()
    with pytest.raises(ReprobuildError, match="the disk is full"), committer(store) as commits:
        commits.put(made(0, log))
        assert store.entered.wait(20)
        commits.put(made(1, log))
        store.gate.set()
    assert sorted(log) == ["released 0", "released 1"]
    assert store.inner.realized(record(0).drv) is None


def test_after_a_failure_nothing_more_is_taken() -> None:
    store, log = Store(), list[str]()
    store.fail = ReprobuildError("E-STORE-WRITE", "the disk is full")
    with pytest.raises(ReprobuildError, match="the disk is full"), committer(store) as commits:
        number = 0
        while True:  # until the first one's failure is known
            commits.put(made(number, log))
            number += 1
            assert number < 1_000_000
    assert all(text.startswith("released") for text in log)


def test_an_interrupted_run_records_what_was_made() -> None:
    store, log = Store(), list[str]()
    with pytest.raises(KeyboardInterrupt), committer(store) as commits:
        commits.put(made(0, log))
        raise KeyboardInterrupt
    assert store.inner.realized(record(0).drv) == record(0)
