"""What is no regular file in a file's place is refused; nobody waits for it, or follows it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.store.glance import Glance
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.record import Record
from support.stores import keep, put, recorded, refused, tree_of


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path may have a hundred bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name[:90])
            if path.name[90:]:
                Path(path.name[:90]).rename(path.name)
    finally:
        os.chdir(here)


def _link_to_directory(path: Path) -> None:
    path.symlink_to("/usr")


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


STRANGE = (_fifo, _socket, _link_to_directory, _link_to_device, Path.mkdir)
strange = pytest.mark.parametrize("make", STRANGE, ids=[f.__name__.strip("_") for f in STRANGE])


@pytest.fixture(autouse=True)
def _awake() -> Iterator[None]:
    """Waiting for ever is a failure, not the end of the suite."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True)


@pytest.fixture
def record(store: LocalStore) -> Record:
    record = recorded(store, "r", tree_of(store, "x"))
    keep(store, "r", record)
    return record


@strange
@pytest.mark.usefixtures("record")
def test_among_roots(store: LocalStore, make: Callable[[Path], None]) -> None:
    """Collection stops, since it might have been a root; verification and repair name it."""
    path = store.path / "roots" / "strange"
    make(path)
    [problem] = store.verify(jobs=1).problems
    assert (problem.kind, problem.path) == ("misplaced", str(path))
    assert store.repair(jobs=1).left == [str(problem)]
    error = refused("E-STORE-DAMAGED", store.gc)
    assert str(path) in error.message
    assert error.hint == "move away what is there: it is not the store's"
    assert os.path.lexists(path)
    assert set(store.roots()) == {"r", "strange"}


@strange
def test_among_records(store: LocalStore, record: Record, make: Callable[[Path], None]) -> None:
    path = store.path / "records" / record.action.hex / ("0" * 64)
    make(path)
    [problem] = store.verify(jobs=1).problems
    assert (problem.kind, problem.path) == ("misplaced", str(path))
    assert store.repair(jobs=1).left == [str(problem)]
    assert str(path) in refused("E-STORE-DAMAGED", lambda: store.records(record.action)).message


def test_in_the_place_of_an_actions_records(store: LocalStore, record: Record) -> None:
    place = store.path / "records" / record.action.hex
    place.rename(store.path / "aside")
    for make in (_fifo, Path.touch):
        make(place)
        error = refused("E-STORE-DAMAGED", lambda: store.records(record.action))
        assert str(place) in error.message and error.hint
        place.unlink()
    assert store.records(record.action) == ()


@strange
def test_in_a_documents_place(
    store: LocalStore, record: Record, make: Callable[[Path], None]
) -> None:
    """A memo, and the format file: nothing is known of the first, the second is no store's."""
    memo = store.path / "chosen" / record.drv.hex[:2] / record.drv.hex
    memo.unlink()
    make(memo)
    [problem] = store.verify(jobs=1).problems
    assert (problem.kind, problem.path) == ("misplaced", str(memo))
    store.gc()
    glance = Glance.into(str(store.path))
    assert glance is not None
    assert not glance.has_realized(record.drv.hex)
    assert store.realized(record.drv) is None
    store.choose(record.drv, record)  # as well as it can
    mark = store.path / "format"
    mark.unlink()
    make(mark)
    assert Glance.into(str(store.path)) is None
    refused("E-STORE-FORMAT", lambda: LocalStore.open(store.path))


@strange
def test_in_an_objects_place(store: LocalStore, make: Callable[[Path], None]) -> None:
    tree = tree_of(store, "y")
    store.barrier()
    entry = put(store, b"y")
    blob = store.path / "blobs" / entry.digest.hex[:2] / entry.digest.hex
    node = store.path / "trees" / tree.hex[:2] / tree.hex
    for path in (blob, node):
        path.unlink()
        make(path)
    fresh = LocalStore.open(store.path)
    refused("E-STORE-DAMAGED", lambda: fresh.tree(tree))
    refused("E-STORE-DAMAGED", lambda: fresh.read_blob(entry))
    problems = fresh.verify(jobs=1).problems
    assert {(p.kind, p.path) for p in problems} == {
        ("misplaced", str(blob)),
        ("misplaced", str(node)),
    }


def test_a_root_whose_file_name_is_no_text(store: LocalStore, record: Record) -> None:
    path = os.fsencode(store.path / "roots") + b"/\xff"
    with open(path, "wb") as file:
        file.write(b"nonsense")
    [problem] = store.verify(jobs=1).problems
    assert os.fsencode(problem.path) == path
    assert record.drv is not None


@strange
def test_among_what_is_remembered(
    store: LocalStore, record: Record, make: Callable[[Path], None]
) -> None:
    """What is kept to spare readings only costs one where it cannot be read."""
    tree = record.outputs["out"]
    store.materialise(tree)
    memo = store.path / "cache" / "made" / tree.hex
    memo.parent.mkdir(exist_ok=True)
    memo.unlink(missing_ok=True)
    make(memo)
    with LocalStore.open(store.path) as again:
        assert (again.materialise(tree) / "x").read_bytes() == b"x"
