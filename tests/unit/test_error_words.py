"""What errors say of their cause."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from reprobuild.adapters.git.plumbing import failure
from reprobuild.adapters.store.durable import write_error


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_permission_is_not_called_a_lack_of_room(tmp_path: Path, number: int) -> None:
    error = write_error(tmp_path, "a blob", OSError(number, "no", str(tmp_path / "blobs")))
    assert "free" not in error.message
    assert "permissions" in error.hint
    assert error.facts["path"] == str(tmp_path / "blobs")


def test_a_full_disk_says_how_much_is_free(tmp_path: Path) -> None:
    error = write_error(tmp_path, "a blob", OSError(errno.ENOSPC, "full"))
    assert "MiB free" in error.message


def test_a_git_error_names_the_command() -> None:
    argv = ["-c", "core.hooksPath=/dev/null", "-C", "/somewhere", "--no-pager", "ls-remote", "url"]
    assert failure(argv, 128, b"fatal: no").message == "git ls-remote ended with 128: fatal: no"
