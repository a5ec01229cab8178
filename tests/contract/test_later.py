"""Work directories that are removed at the end: only small ones, all of them, and never twice."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from reprobuild.adapters.sandbox import later
from reprobuild.adapters.sandbox.later import Later
from reprobuild.adapters.sandbox.removal import remove_tree
from reprobuild.errors import ReprobuildError


class Room(NamedTuple):
    """A file system, as statvfs(3) tells of it."""

    f_bavail: int = 2**40
    f_frsize: int = 1
    f_files: int = 10**7
    f_favail: int = 10**7


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, Room())


def has(monkeypatch: pytest.MonkeyPatch, found: Room) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: found)


def made(tmp_path: Path, name: str, size: int = 10) -> Path:
    work = tmp_path / name
    for part in ("build", "out/out", "tmp"):
        (work / part).mkdir(parents=True)
    (work / "out/out/text").write_bytes(b"x" * size)
    return work


def test_at_once_outside_of_a_batch(tmp_path: Path) -> None:
    work = made(tmp_path, "a")
    Later().remove(work)
    assert not work.exists()


def test_small_ones_wait_for_the_end_of_a_batch_and_are_gone_with_the_outermost(
    tmp_path: Path,
) -> None:
    works = [made(tmp_path, str(number)) for number in range(50)]
    after = Later()
    with after.batch():
        with after.batch():
            for work in works:
                after.remove(work)
            assert all(work.exists() for work in works)
        late = made(tmp_path, "late")
        after.remove(late)
        assert late.exists()
    assert not any(tmp_path.iterdir())


def test_an_inner_batch_s_end_begins_to_remove(tmp_path: Path) -> None:
    after = Later()
    with after.batch():
        with after.batch():
            for number in range(50):
                after.remove(made(tmp_path, str(number)))
        wait_until(lambda: not any(tmp_path.iterdir()))


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("program", ["/nowhere/rm", "false"])
def test_where_rm_is_missing_or_fails_they_go_all_the_same(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "REMOVER", program)
    after = Later()
    with after.batch():
        for number in range(20):
            after.remove(made(tmp_path, str(number)))
    assert not any(tmp_path.iterdir())


def test_a_link_that_a_build_left_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    after = Later()
    with after.batch():
        for number in range(20):
            work = made(tmp_path, str(number))
            (work / "tmp/link").symlink_to(precious)
            after.remove(work)
    assert [path.name for path in tmp_path.rglob("*")] == ["precious", "file"]


def test_large_ones_do_not_wait(tmp_path: Path) -> None:
    after = Later()
    with after.batch():
        for name, size in (("bytes", 2**17), ("entries", 0)):
            work = made(tmp_path, name, size)
            for number in range(100 if not size else 0):
                (work / "tmp" / str(number)).touch()
            after.remove(work)
            assert not work.exists()


@pytest.mark.parametrize("little", [Room(f_bavail=2**30), Room(f_favail=1000)])
def test_nothing_waits_where_there_is_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little: Room
) -> None:
    has(monkeypatch, little)
    work = made(tmp_path, "a")
    after = Later()
    with after.batch():
        after.remove(work)
        assert not work.exists()


def test_a_file_system_that_does_not_count_inodes_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, Room(f_files=0, f_favail=0))
    work = made(tmp_path, "a")
    after = Later()
    with after.batch():
        after.remove(work)
        assert work.exists()
    assert not work.exists()


def test_not_too_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "MOST", 3)
    works = [made(tmp_path, str(number)) for number in range(5)]
    after = Later()
    with after.batch():
        for work in works:
            after.remove(work)
        assert [work.exists() for work in works] == [True] * 3 + [False] * 2


def test_all_go_when_the_run_fails_too(tmp_path: Path) -> None:
    work = made(tmp_path, "a")
    after = Later()
    with pytest.raises(KeyboardInterrupt), after.batch():
        after.remove(work)
        raise KeyboardInterrupt
    assert not work.exists()


def test_what_cannot_be_removed_is_said_and_the_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "REMOVER", "false")
    works = [made(tmp_path, str(number)) for number in range(20)]

    def refuse(directory: Path) -> None:
        if directory == works[1]:
            raise PermissionError(1, "not yours", os.fspath(directory))
        remove_tree(directory)

    monkeypatch.setattr(later, "remove_tree", refuse)
    after = Later()
    with pytest.raises(ReprobuildError) as raised, after.batch():
        for work in works:
            after.remove(work)
    assert raised.value.code == "E-SANDBOX-SETUP"
    assert raised.value.facts["file"] == str(works[1])
    assert [work for work in works if work.exists()] == [works[1]]


def test_from_many_threads(tmp_path: Path) -> None:
    works = [made(tmp_path, str(number)) for number in range(40)]
    after = Later()

    def remove(own: list[Path]) -> None:
        for work in own:
            after.remove(work)

    with after.batch():
        threads = [threading.Thread(target=remove, args=(own,)) for own in (works[:20], works[20:])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(work.exists() for work in works)
    assert not any(tmp_path.iterdir())


def test_a_directory_that_somebody_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> Room:
        raise FileNotFoundError(2, os.strerror(2), str(path))

    monkeypatch.setattr(os, "statvfs", gone)
    after = Later()
    with after.batch():
        after.remove(tmp_path / "absent")
        work = made(tmp_path, "a")
        after.remove(work)
        assert not work.exists()
        has(monkeypatch, Room())
        after.remove(made(tmp_path, "b"))
        assert (tmp_path / "b").exists()  # the next is asked for again
    assert not (tmp_path / "b").exists()
