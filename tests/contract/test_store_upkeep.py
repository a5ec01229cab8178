"""Collection and repair among things that are not the store's: these are left, named, and stop
nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.record import Record
from support.stores import keep, put, recorded, tree_of

HEX = "ab" * 32


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore.open(tmp_path / "store", create=True) as opened:
        yield opened


@pytest.fixture
def record(store: LocalStore) -> Record:
    """What a root keeps, laid out, and beside it something for collection to take."""
    record = recorded(store, "r", tree_of(store, "x", "y"))
    keep(store, "r", record)
    store.materialise(record.outputs["out"])
    put(store, b"rubbish")
    store.barrier()
    return record


def _link(path: Path) -> None:
    elsewhere = path.parents[1].parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "build-theirs").mkdir()
    (elsewhere / "build-theirs" / "file").write_text("theirs")
    path.symlink_to(elsewhere)


def _file(path: Path) -> None:
    path.write_text("theirs")


STRANGERS: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("tmp/strange", _link),
    ("tmp/strange", os.mkfifo),
    ("build/build-strange", _link),
    ("build/build-strange", _file),
    ("runtime/strange", _link),
    ("logs/strange", Path.mkdir),
    ("blobs/00", _file),
    ("blobs/ab", _link),
    (f"blobs/{HEX[:2]}/{HEX}", Path.mkdir),
    (f"blobs/{HEX[:2]}/notes.txt", _file),
    ("trees/00", _file),
    (f"trees/{HEX[:2]}/{HEX}", os.mkfifo),
    (f"drvs/{HEX[:2]}/{HEX}", Path.mkdir),
    (f"records/{HEX}", _file),
    (f"records/{HEX}", _link),
    ("records/notes.txt", _file),
)


@pytest.mark.parametrize(
    ("place", "make"), STRANGERS, ids=[f"{n}-{f.__name__}" for n, f in STRANGERS]
)
@pytest.mark.usefixtures("record")
def test_a_stranger_is_left_and_named_and_the_rest_collected(
    store: LocalStore, place: str, make: Callable[[Path], None]
) -> None:
    path = store.path / place
    path.parent.mkdir(exist_ok=True)
    make(path)
    plan = store.gc(dry_run=True)
    done = store.gc()
    assert plan.strange == done.strange == [str(path)]
    assert done.kinds["blobs"].count == 1 and "tmp" not in done.kinds and not done.left
    assert os.path.lexists(path)
    if path.is_symlink():
        assert (path / "build-theirs" / "file").read_text() == "theirs"
    store.repair(jobs=1)
    assert os.path.lexists(path)


@pytest.mark.parametrize("name", ["logs", "materialised", "build"])
def test_a_directory_that_is_a_link_is_not_gone_into(
    store: LocalStore, record: Record, tmp_path: Path, name: str
) -> None:
    (store.path / name).rename(tmp_path / "elsewhere")
    (store.path / name).symlink_to(tmp_path / "elsewhere")
    theirs = tmp_path / "elsewhere" / ("build-theirs" if name == "build" else HEX)
    theirs.touch()
    done = store.gc()
    assert done.strange == [str(store.path / name)]
    assert done.kinds["blobs"].count == 1
    assert theirs.exists()


@pytest.mark.parametrize("length", [201, 250, 255])
def test_a_long_name_among_what_was_materialised(
    store: LocalStore, record: Record, length: int
) -> None:
    """What was made there is a cache: whatever is not of it goes, from both."""
    for work in (lambda: store.repair(jobs=1), store.gc):
        (store.path / "materialised" / ("n" * length)).mkdir()
        work()
        kept = [path.name for path in (store.path / "materialised").iterdir()]
        assert kept == [record.outputs["out"].hex]
