"""A place that is no store, or not this user's: nothing is made there, or said that is not so."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from reprobuild.settings import Settings
from support.cliin import Said, cli
from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox

ABOUT_IT = [
    ["store", "verify"],
    ["store", "info"],
    ["store", "gc"],
    ["store", "gc", "--dry-run"],
    ["store", "roots"],
    ["store", "repair"],
    ["store", "repair", "--rebuild"],
    ["store", "quarantine"],
    ["store", "cat", "blake3:" + "0" * 64],
    ["inventory"],
]

LOOKING = [
    (["show"], 0),
    (["graph"], 0),
    (["why", "demo", "header.strip"], 0),
    (["why", "demo", "header.strip", "--rebuilt"], 2),
    (["diff", "demo", "demo"], 0),
    (["realize", "--dry-run"], 0),
    (["release", "check"], 0),
    (["release", "contract", "demo"], 0),
    (["qualify", "demo", "--list"], 0),
    (["kernels", "demo"], 2),
    (["log", "header.strip"], 2),
    (["image", "inspect", "demo"], 2),
    (["export", "demo", "-o", "{}/bundle"], 2),
    (["doctor"], 0),
    (["verdict", "{}/project/notes", "{}/project/notes"], 0),
    (["import", "{}/project/flake-like.toml", "--unsigned"], 3),
]


def call(demo: Demo, *words: str) -> Said:
    return cli("-C", str(demo.path), "--store", str(demo.store), "-q", *words)


@pytest.mark.parametrize("words", ABOUT_IT, ids=" ".join)
def test_what_is_said_of_a_store_needs_one(locked: Demo, words: list[str]) -> None:
    said = call(locked, *words)
    assert (said.status, "E-NO-STORE" in said.err, said.out) == (7, True, ""), said.err
    assert str(locked.store) in said.err
    assert not os.path.lexists(locked.store)


@pytest.mark.parametrize(
    ("words", "status"), LOOKING, ids=lambda v: " ".join(v) if isinstance(v, list) else str(v)
)
def test_looking_makes_no_store(
    locked: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    said = call(locked, *(word.format(tmp_path) for word in words))
    assert said.status == status, said.err
    assert not os.path.lexists(locked.store)
    assert list(scratch.iterdir()) == []


def test_a_directory_of_other_things_is_no_store(locked: Demo) -> None:
    locked.store.mkdir()
    (locked.store / "thesis.tex").touch()
    said = call(locked, "store", "verify")
    assert (said.status, "E-STORE-FORMAT" in said.err) == (7, True), said.err
    assert os.listdir(locked.store) == ["thesis.tex"]


def test_doctor_says_who_may_not_write(realized: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    # As for an account that the system gave no place of its own, over a store of another's.
    monkeypatch.setattr(Settings, "system_runtime_dir", None)
    (realized.store / "runtime").touch()
    real = os.access

    def access(path: object, mode: int, **more: bool) -> bool:
        ours = str(path).startswith(str(realized.store))
        return not (ours and mode & os.W_OK) and real(path, mode, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "access", access)
    said = call(realized, "doctor")
    rows = {line.split()[1]: line.split()[0] for line in said.out.splitlines()}
    assert (said.status, rows["sandbox"], rows["store"]) == (10, "ok", "missing"), said.out
    assert f"{realized.store} may not be written by this user" in said.err
    assert "hint: mend the permissions" in said.err
    assert "install" not in said.err


def test_doctor_of_a_store_that_cannot_be_made(locked: Demo) -> None:
    said = cli("-C", str(locked.path), "--store", str(locked.path / "flake-like.toml"), "doctor")
    assert (said.status, "E-ENVIRONMENT" in said.err) == (10, True), said.err
    said = call(locked, "doctor")
    assert "`reprobuild realize` makes it" in said.out


def test_a_sandbox_without_its_place(realized: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.mkdir

    def refuse(path: str | Path, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if "/shell-" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        real(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", refuse)
    said = call(realized, "shell", "demo.program", "--", "/bin/true")
    assert (said.status, "E-STORE-WRITE" in said.err) == (10, True), said.err


@pytest.mark.parametrize("name", ["records", "blobs", "roots", "locks", "materialised", "build"])
def test_what_is_no_directory_in_a_store_is_said(realized: Demo, name: str) -> None:
    realized.run("realize", "demo.notes")
    (realized.store / name).rename(realized.store.parent / "away")
    os.mkfifo(realized.store / name)
    for words in (["realize", "demo.notes", "--check"], ["store", "verify"], ["store", "repair"]):
        said = call(realized, *words)
        assert (said.status, "E-STORE-DAMAGED" in said.err, said.out) == (7, True, ""), said.err
        assert str(realized.store / name) in said.err
    (realized.store / name).unlink()
    (realized.store.parent / "away").rename(realized.store / name)
    said = call(realized, "store", "verify")
    assert said.status == 0, "nothing was dropped meanwhile"
