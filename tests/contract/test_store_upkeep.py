"""Collection and repair among things that are not the store's: these are left, named, and stop
nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from support.cliin import cli
from support.stores import (
    blob_path,
    keep,
    put,
    recorded,
    refused,
    tree_of,
    tree_path,
)

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
    store = next(above for above in path.parents if above.name == "store")
    elsewhere = store.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "build-theirs").mkdir()
    (elsewhere / "build-theirs" / "file").write_text("theirs")
    path.symlink_to(elsewhere)


def _file(path: Path) -> None:
    path.write_text("theirs")


STRANGERS: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("tmp/strange", _link),
    ("tmp/strange", os.mkfifo),
    ("tmp/strange", _file),
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

ASIDE: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("quarantine/notes.txt", _file),
    ("quarantine/theirs", _link),
    (f"quarantine/{HEX}", _link),
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


@pytest.mark.parametrize(("place", "make"), ASIDE, ids=[name for name, _ in ASIDE])
@pytest.mark.usefixtures("record")
def test_what_is_no_action_in_quarantine_keeps_nothing(
    store: LocalStore, place: str, make: Callable[[Path], None]
) -> None:
    path = store.path / place
    path.parent.mkdir()
    make(path)
    assert store.gc().kinds["blobs"].count == 1
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


def _in_place(path: Path, make: Callable[[Path], None]) -> None:
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    else:
        path.unlink()
    make(path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _link])
@pytest.mark.parametrize("kind", ["blob", "tree"])
def test_repair_goes_on_where_an_object_cannot_get_its_place(
    store: LocalStore, record: Record, kind: str, make: Callable[[Path], None]
) -> None:
    """Nothing goes for its sake: the copy in the cache may be the last."""
    path = blob_path(store, Digest.of(b"x"))
    if kind == "tree":
        path = tree_path(store, record.outputs["out"])
    _in_place(path, make)
    other = blob_path(store, Digest.of(b"y"))
    other.unlink()
    done = store.repair(jobs=1)
    assert done.stops == [str(path)]
    assert done.restored == [f"blob {other.name}"]
    assert not (done.records or done.roots or done.materialised or done.incomplete or done.trees)
    assert len([line for line in done.left if str(path) in line]) == 1 and os.path.lexists(path)
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    done = store.repair(jobs=1)
    assert done.restored == [f"{kind} {path.name}"] and not done.stops
    assert store.verify(jobs=1).problems == []


@pytest.mark.parametrize("make", [_file, _link])
def test_repair_goes_on_where_a_shard_is_something_else(
    store: LocalStore, record: Record, make: Callable[[Path], None]
) -> None:
    shard = blob_path(store, Digest.of(b"x")).parent
    _in_place(shard, make)
    done = store.repair(jobs=1)
    assert done.stops == [str(shard)] and not done.restored
    assert store.roots() == ["r"]
    if shard.is_symlink():
        assert [path.name for path in shard.iterdir()] == ["build-theirs"]
    shard.unlink()
    assert store.repair(jobs=1).restored == [f"blob {Digest.of(b'x').hex}"]
    assert store.verify(jobs=1).problems == []


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _link])
@pytest.mark.parametrize("place", ["roots/strange", f"quarantine/{HEX}/{HEX}"])
@pytest.mark.usefixtures("record")
def test_what_collection_stops_at_is_named_by_repair(
    store: LocalStore, place: str, make: Callable[[Path], None]
) -> None:
    path = store.path / place
    path.parent.mkdir(exist_ok=True, parents=True)
    make(path)
    refused("E-STORE-DAMAGED", store.gc)
    assert store.repair(jobs=1).stops == [str(path)]
    said = cli("--store", str(store.path), "store", "repair")
    assert said.status == 7 and str(path) in said.out and str(path) in said.err
    said = cli("--store", str(store.path), "--json", "store", "repair")
    assert said.status == 7 and said.document["error"]["facts"]["stops"] == [str(path)]
    assert os.path.lexists(path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _file, _link])
@pytest.mark.parametrize("place", ["records/{h}", "records/{a}/{h}", "quarantine/{h}/{h}"])
def test_disagreements_among_strangers(
    store: LocalStore, place: str, make: Callable[[Path], None], record: Record
) -> None:
    other = Record(record.action, record.drv, {"out": tree_of(store, "other")}, name="r")
    store.add_record(other)
    path = store.path / place.format(a=record.action.hex, h=HEX)
    path.parent.mkdir(exist_ok=True, parents=True)
    make(path)
    if make is _file and place != "records/{h}":
        refused("E-STORE-DAMAGED", store.quarantine.disagreements)
        return
    [found] = store.quarantine.disagreements()
    assert {result.name for result in found.results} == {record.digest.hex, other.digest.hex}
    store.quarantine.set_aside(other.digest.hex)
    [found] = store.quarantine.disagreements()
    assert found.settled
    assert os.path.lexists(path)


def test_single_files_that_a_crash_left_go(store: LocalStore) -> None:
    names = ("seen-123-0123abcd", "root-0123456789ab", "format-1-00000000", "reserve-7-0123abcd")
    for name in names:
        (store.path / "tmp" / name).touch()
    done = store.gc()
    assert done.kinds["tmp"].count == len(names) and not done.strange
    assert list((store.path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("place", "make", "stops"),
    [
        ("blobs/00", _file, True),
        (f"records/{HEX}", _file, True),
        (f"records/{HEX}", os.mkfifo, True),
        (f"trees/ab/{HEX}", Path.mkdir, True),
        ("blobs/notes.txt", _file, False),
        ("blobs/ab/notes.txt", _file, False),
        ("records/notes.txt", _file, False),
        ("notes.txt", _file, False),
    ],
)
def test_repair_tells_what_is_in_the_way_from_what_only_lies_there(
    store: LocalStore, place: str, make: Callable[[Path], None], stops: bool
) -> None:
    path = store.path / place
    path.parent.mkdir(exist_ok=True)
    make(path)
    done = store.repair(jobs=1)
    assert done.stops == ([str(path)] if stops else [])
    assert len(done.left) == 1 and str(path) in done.left[0]
