"""Work directories and logs: whose they are, and what is said when there is no room for them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from reprobuild.core.digest import Digest
from reprobuild.engine.workplace import log_name, log_tail, new_log, set_aside, work_directory
from reprobuild.errors import ReprobuildError

DRV = Digest.of(b"drv")


def test_places_are_made_and_their_own(tmp_path: Path) -> None:
    place = tmp_path / "not/yet"
    first, second = work_directory(place), work_directory(place, "shell")
    assert first.parent == second.parent == place
    assert first.name.startswith("build-") and second.name.startswith("shell-")
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    kept = set_aside(first)
    assert kept.name == first.name.replace("build-", "failed-") and kept.is_dir()
    assert not first.exists()


def test_a_log_can_be_read_by_who_shares_the_store(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with new_log(tmp_path / "logs", DRV) as (path, log):
            log.write(b"one\ntwo \xff\n")
    finally:
        os.umask(before)
    assert log_name(path) == Path(path).name and log_name(path).startswith(DRV.short)
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o644
    assert log_tail(path, 1) == ["two \\xff"]
    assert log_tail(path + ".absent") == []


def _log(place: Path) -> None:
    with new_log(place, DRV):
        raise AssertionError("there is no such place")


def _full(place: Path) -> None:
    with new_log(place.parent, DRV) as (_, log):
        log.write(b"kept in a buffer")
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, log.fileno())
        os.close(full)


@pytest.mark.parametrize("ask", [work_directory, _log, _full])
def test_a_disk_that_refuses_is_said_so(tmp_path: Path, ask: Callable[[Path], object]) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"")
    with pytest.raises(ReprobuildError) as caught:
        ask(place)
    assert caught.value.code == "E-STORE-WRITE"
    assert caught.value.facts["errno"] in ("ENOTDIR", "ENOSPC", "EEXIST")
