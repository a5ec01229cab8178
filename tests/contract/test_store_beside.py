"""Verification while others write: what came after it had looked at a directory is no damage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reprobuild.adapters.store import verify, verify_documents, verify_made
from reprobuild.adapters.store.store import LocalStore
from support.stores import blob_path, keep, put, recorded, tree_of, tree_path

STEPS = (
    (verify, "_content"),
    (verify, "shards"),
    (verify, "check_shard"),
    (verify_documents, "_drvs"),
    (verify_documents, "_records"),
    (verify_documents, "_chosen"),
    (verify_documents, "_roots"),
    (verify_made, "check_materialised"),
)


def _before(patch: pytest.MonkeyPatch, where: object, name: str, call: Callable[[], None]) -> None:
    """Has `call` done, once, before verification takes a step."""
    step = getattr(where, name)
    todo = [call]

    def stepping(*words: object, **more: object) -> object:
        while todo:
            todo.pop()()
        return step(*words, **more)

    patch.setattr(where, name, stepping)


def _build(store: LocalStore, name: str) -> None:
    """All that a build leaves: two levels of trees, documents, a root, and a directory."""
    tree = tree_of(store, name, below=tree_of(store, f"{name}-below"))
    keep(store, name, recorded(store, name, tree))
    store.materialise(tree)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store with one build."""
    store = LocalStore.open(tmp_path / "store", create=True)
    _build(store, "first")
    return store


@pytest.mark.parametrize(("where", "step"), STEPS, ids=[name for _, name in STEPS])
def test_what_is_built_meanwhile_is_not_missing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, where: object, step: str
) -> None:
    built: list[str] = []

    def build() -> None:
        for number in range(8):
            _build(store, f"meanwhile-{number}")
            built.append(f"meanwhile-{number}")

    _before(monkeypatch, where, step, build)
    assert store.verify(jobs=1).problems == []
    assert len(built) == 8


@pytest.mark.parametrize(("where", "step"), STEPS, ids=[name for _, name in STEPS])
def test_what_is_damaged_of_it_is_found(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, where: object, step: str
) -> None:
    """What came late is looked at as closely as all else."""
    lost: list[str] = []

    def build() -> None:
        below = tree_of(store, "below")
        tree = tree_of(store, "lost", below=below)
        record = recorded(store, "late", tree)
        keep(store, "late", record)
        path = blob_path(store, put(store, b"below").digest)
        path.unlink()
        lost.append(f"blob {path.name}")

    _before(monkeypatch, where, step, build)
    if (where, step) == (verify_made, "check_materialised"):
        # Nothing that was looked at refers to it any more: the next verification finds it.
        store.verify(jobs=1)
    problems = store.verify(jobs=1).problems
    assert [(p.kind, p.object) for p in problems] == [("missing", lost[0])]


def test_late_objects_that_are_damaged_are_named_once(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not also as missing, by each that refers to it."""
    late: list[Path] = []

    def build() -> None:
        tree = tree_of(store, "a", "b")
        for name in ("one", "two"):
            keep(store, name, recorded(store, name, tree))
        late.append(tree_path(store, tree))
        late[0].chmod(0o644)
        late[0].write_bytes(b"nonsense")
        late[0].chmod(0o444)

    _before(monkeypatch, verify_documents, "_records", build)
    [problem] = store.verify(jobs=1).problems
    assert (problem.kind, problem.path) == ("damaged", str(late[0]))


def test_what_was_missing_all_along_is_found(store: LocalStore) -> None:
    tree = tree_of(store, "x", below=tree_of(store, "y"))
    record = recorded(store, "gone", tree)
    keep(store, "gone", record)
    (store.path / "records" / record.action.hex / record.digest.hex).unlink()
    tree_path(store, tree).unlink()
    found = {(p.kind, p.object, Path(p.path).parent.name) for p in store.verify(jobs=1).problems}
    assert found == {
        ("missing", f"record {record.digest.hex}", record.drv.hex[:2]),
        ("missing", f"record {record.digest.hex}", "roots"),
        ("missing", f"tree {tree.hex}", "roots"),
    }


def test_a_root_that_is_gone_by_the_end_misses_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(store, "x")
    keep(store, "gone", recorded(store, "gone", tree))
    tree_path(store, tree).unlink()

    def end() -> None:
        store.remove_root("gone")

    _before(monkeypatch, verify_made, "check_materialised", end)
    paths = [p.path for p in store.verify(jobs=1).problems]
    assert paths
    assert not [path for path in paths if "/roots/" in path]


def test_a_directory_that_is_made_again_meanwhile_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renamed, emptied, and another takes its name, while the first one is looked at."""
    store = LocalStore.open(tmp_path / "other", create=True)
    tree = tree_of(store, "p", "q", below=tree_of(store, "r"))
    place = store.materialise(tree)

    def again() -> None:
        dead = place.with_name(".dead")
        place.rename(dead)
        dead.chmod(0o755)
        (dead / "p").unlink()
        os.rename(dead / "below", place.parent / ".dead-below")
        LocalStore.open(store.path).materialise(tree)

    _before(monkeypatch, verify_made._Checker, "_entries", again)
    assert store.verify(jobs=1).problems == []


def test_a_directory_that_is_put_away_meanwhile_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore.open(tmp_path / "other", create=True)
    place = store.materialise(tree_of(store, "p"))

    def away() -> None:
        place.rename(place.with_name(".dead"))

    _before(monkeypatch, verify_made._Checker, "tree", away)
    assert store.verify(jobs=1).problems == []


def test_a_link_that_is_taken_back_is_no_finding(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two who make directories may link one blob at a time; one of them steps back."""
    tree = tree_of(store, "p")
    store.materialise(tree)
    entry = put(store, b"p")
    third = tmp_path / "third"
    os.link(blob_path(store, entry.digest), third)
    _before(monkeypatch, verify_made, "check_materialised", third.unlink)
    assert store.verify(jobs=1).problems == []
    os.link(blob_path(store, entry.digest), third)
    assert [p.kind for p in store.verify(jobs=1).problems] == ["mode"]
