"""Removes what a build left behind, whatever its shape, without following a link."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from pathlib import Path


def remove_tree(directory: Path) -> None:
    """Removes `directory` and all below it; one that is not there is no error.

    Directories without permissions are opened up first. Nested directories are moved up before
    they are emptied, so neither depth nor path length is a limit, and nothing recurses. No process
    may be writing there any more. Raises OSError for what even so cannot be removed.
    """
    try:
        mode = directory.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        directory.unlink()
        return
    directory.chmod(0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    top = os.open(directory, flags)
    try:
        fresh = itertools.count()
        pending = _empty(top, top, fresh)
        while pending:
            name = pending.pop()
            here = os.open(name, flags, dir_fd=top)
            try:
                pending += _empty(here, top, fresh)
            finally:
                os.close(here)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    directory.rmdir()


def _empty(here: int, top: int, fresh: itertools.count[int]) -> list[str]:
    """Unlinks the files in `here` and moves its directories to `top`; returns their names there."""
    moved: list[str] = []
    with os.scandir(here) as listing:
        entries = [(e.name, e.is_dir(follow_symlinks=False)) for e in listing]
    for name, is_directory in entries:
        if not is_directory:
            os.unlink(name, dir_fd=here)
            continue
        with contextlib.suppress(OSError):  # most are empty
            os.rmdir(name, dir_fd=here)
            continue
        # Moving a directory writes to it (its ".."), so it must be ours to write first.
        os.chmod(name, 0o700, dir_fd=here)
        while True:
            place = f".removing-{next(fresh)}"
            try:
                os.stat(place, dir_fd=top, follow_symlinks=False)
            except FileNotFoundError:
                break
        os.rename(name, place, src_dir_fd=here, dst_dir_fd=top)
        moved.append(place)
    return moved
