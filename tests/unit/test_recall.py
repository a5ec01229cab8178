"""The memo of a run with nothing to do: what it answers, and what makes it silent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprobuild.core.digest import Digest
from reprobuild.engine import fingerprint as fingerprints
from reprobuild.engine.fingerprint import fingerprint
from reprobuild.engine.recall import memo_name, recall, root_name
from reprobuild.engine.results import memo

TREE = Digest("ab" * 32)
DRV = Digest("cd" * 32)
WISHES: dict[str, Any] = {"isolation": None}


class Store:
    """Roots and trees, as a glance sees them."""

    def __init__(self) -> None:
        self.roots: dict[str, bytes] = {}
        self.trees = {TREE.hex}
        self.drvs = {DRV.hex}
        self.elsewhere = ""

    def root(self, name: str) -> bytes | None:
        return self.roots.get(name)

    def has_tree(self, hex_digest: str) -> bool:
        return hex_digest in self.trees

    def has_realized(self, hex_digest: str) -> bool:
        return hex_digest in self.drvs

    def holds(self, path: str) -> bool:
        return path != self.elsewhere


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("derivations", "notes/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "flake-like.toml").write_text("format = 0\n")
    (tmp_path / "flake-like.lock").write_text("format = 0\n")
    (tmp_path / "derivations/a.toml").write_text("a = 1\n")
    (tmp_path / "notes/deep/a.txt").write_text("a\n")
    (tmp_path / "result").mkdir()
    return tmp_path


def remember(store: Store, project: Path, *installables: str) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "counts": {"built": 3},
        "outputs": {"demo": {"drv": str(DRV), "tree": str(TREE), "path": str(project / "result")}},
    }
    key = fingerprint(project, ["notes"], WISHES)
    name, document = memo(project, installables, ["notes"], answer, key)
    store.roots[name] = document
    return answer


def test_answers_the_same_question(project: Path) -> None:
    store = Store()
    answer = remember(store, project)
    assert recall(store, project, [], WISHES) == answer


def test_does_not_answer_another(project: Path) -> None:
    store = Store()
    remember(store, project)
    assert recall(store, project, ["demo"], WISHES) is None
    assert recall(store, project, [], {"isolation": "none"}) is None
    assert recall(store, project / "notes", [], WISHES) is None
    assert recall(Store(), project, [], WISHES) is None


def test_does_not_name_what_lies_in_another_store(project: Path) -> None:
    store = Store()
    store.elsewhere = remember(store, project)["outputs"]["demo"]["path"]
    assert recall(store, project, [], WISHES) is None


def put_back(path: Path) -> None:
    """Other content of the same size, under the old time."""
    path.write_text("b\n")
    os.utime(path, (1, 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "flake": lambda p: (p / "flake-like.toml").write_text("format = 1\n"),
    "lock": lambda p: (p / "flake-like.lock").write_text("format = 1\n"),
    "no lock": lambda p: (p / "flake-like.lock").unlink(),
    "component": lambda p: (p / "derivations/a.toml").write_text("a = 2\n"),
    "new component": lambda p: (p / "derivations/b.toml").write_text("a = 1\n"),
    "renamed component": lambda p: (p / "derivations/a.toml").rename(p / "derivations/c.toml"),
    "input, same size": lambda p: (p / "notes/deep/a.txt").write_text("b\n"),
    "new file in input": lambda p: (p / "notes/deep/b.txt").write_text(""),
    "mode of a file": lambda p: (p / "notes/deep/a.txt").chmod(0o755),
    "time put back": lambda p: put_back(p / "notes/deep/a.txt"),
    "a link": lambda p: (p / "notes/link").symlink_to("deep"),
    "input gone": lambda p: (p / "notes").rename(p / "elsewhere"),
    "result gone": lambda p: (p / "result").rmdir(),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_is_silent_when_something_changed(project: Path, change: str) -> None:
    store = Store()
    os.utime(project / "notes/deep/a.txt", (1, 1))
    remember(store, project)
    assert recall(store, project, [], WISHES) is not None
    CHANGES[change](project)
    assert recall(store, project, [], WISHES) is None


def test_is_silent_when_a_tree_is_gone(project: Path) -> None:
    store = Store()
    remember(store, project)
    store.trees.clear()
    assert recall(store, project, [], WISHES) is None


def test_is_silent_when_the_record_is_gone(project: Path) -> None:
    store = Store()
    remember(store, project)
    store.drvs.clear()
    assert recall(store, project, [], WISHES) is None


def as_link(target: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return change


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


ODD: dict[str, Callable[[Path], object]] = {
    "endless": as_link("/dev/zero"),
    "fifo": as_fifo,
    "directory": as_directory,
    "loop": as_link("a.toml"),
    "long": lambda p: p.write_bytes(b"#" * (4 * 2**20 + 1)),
}


@pytest.mark.parametrize("oddity", list(ODD))
def test_what_is_no_plain_file_never_has_an_answer(project: Path, oddity: str) -> None:
    ODD[oddity](project / "derivations/a.toml")
    store = Store()
    remember(store, project)
    assert recall(store, project, [], WISHES) is None


def test_derivations_that_is_no_directory_never_has_an_answer(project: Path) -> None:
    (project / "derivations/a.toml").unlink()
    (project / "derivations").rmdir()
    (project / "derivations").write_text("")
    store = Store()
    remember(store, project)
    assert recall(store, project, [], WISHES) is None


def test_is_silent_for_another_version(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    remember(store, project)
    monkeypatch.setattr(fingerprints, "__version__", "9.9.9")
    assert recall(store, project, [], WISHES) is None


def test_other_files_do_not_count(project: Path) -> None:
    store = Store()
    remember(store, project)
    (project / "README.md").write_text("text")
    (project / "derivations/a.toml~").write_text("a = 3")
    assert recall(store, project, [], WISHES) is not None


def test_names_of_roots_are_told_apart() -> None:
    here, there = Path("/a"), Path("/b")
    names = {
        memo_name([], here),
        memo_name(["demo"], here),
        memo_name(["demo", "other"], here),
        memo_name(["demo"], there),
        root_name("demo", here),
    }
    assert len(names) == 5
