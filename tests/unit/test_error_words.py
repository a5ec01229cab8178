"""What errors say of their cause."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from reprobuild.adapters.git.plumbing import failure
from reprobuild.adapters.store.durable import write_error


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_permission_is_not_called_a_lack_of_room(tmp_path: Path, number: int) -> None:
    error = write_error(tmp_path, "a blob", OSError(number, "no", str(tmp_path / "blobs")))
    assert "free" not in error.message
    assert "permissions" in error.hint
    assert error.facts["path"] == str(tmp_path / "blobs")


@pytest.mark.parametrize(
    "number",
    [errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EEXIST, errno.EROFS],
)
def test_what_is_out_of_place_is_no_matter_of_room(tmp_path: Path, number: int) -> None:
    path = str(tmp_path / "blobs" / "ab")
    error = write_error(tmp_path, "a blob", OSError(number, os.strerror(number), path))
    assert path in error.message and "free" not in error.message
    assert "free_bytes" not in error.facts
    hint = str(error.hint)
    assert "permissions" not in hint
    assert ("read-only" in hint) == (number == errno.EROFS)
    assert ("store verify" in hint) == (number != errno.EROFS)


def test_room_is_told_where_it_is_known(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    error = write_error(tmp_path, "a blob", full)
    assert error.facts["free_bytes"] and "MiB free" in error.message
    error = write_error(tmp_path / "new", "a new store", full)
    assert f"MiB free in {tmp_path})" in error.message
    error = write_error(tmp_path / "absent" / "absent", "a blob", full)
    assert "free_bytes" not in error.facts and "MiB free" not in error.message


def test_a_full_disk_says_how_much_is_free(tmp_path: Path) -> None:
    error = write_error(tmp_path, "a blob", OSError(errno.ENOSPC, "full"))
    assert "MiB free" in error.message


def test_a_git_error_names_the_command() -> None:
    argv = ["-c", "core.hooksPath=/dev/null", "-C", "/somewhere", "--no-pager", "ls-remote", "url"]
    assert failure(argv, 128, b"fatal: no").message == "git ls-remote ended with 128: fatal: no"
