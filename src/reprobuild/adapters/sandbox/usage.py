"""How much disk a running build takes, measured seldom and safely."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

_ENTRY = 1024
_DEPTH = 128


def disk_usage(directories: Sequence[Path | str], stop_above: int) -> int:
    """Bytes of disk below `directories`, links not followed; counting ends above `stop_above`.

    Every entry counts for 1 KiB beside its blocks, so that empty files count too. What cannot be
    read, or lies deeper than 128 levels, is left out.
    """
    total = 0
    for directory in directories:
        total += _measure(os.fspath(directory), None, stop_above - total, 0)
        if total > stop_above:
            break
    return total


def _measure(name: str, parent: int | None, stop_above: int, depth: int) -> int:
    # By descriptor and O_NOFOLLOW: the build may swap a directory for a link while we look.
    try:
        here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        return 0
    total = 0
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                total += status.st_blocks * 512 + _ENTRY
                if stat.S_ISDIR(status.st_mode) and depth < _DEPTH:
                    total += _measure(entry.name, here, stop_above - total, depth + 1)
                if total > stop_above:
                    break
    finally:
        os.close(here)
    return total


class DiskWatch:
    """Says now and then whether a build has taken more than its limit.

    The free space of the file system is asked first: while hardly any is gone, walking the
    directories can wait.
    """

    def __init__(self, directories: Sequence[Path | str], limit: int) -> None:
        self._directories = directories
        self._limit = limit
        self._free = self._free_bytes()
        self._next = time.monotonic() + 0.5
        self._next_walk = self._next + 15

    def _free_bytes(self) -> int:
        # Its parent, since it may have to be made yet; by text, for this is done for every build.
        status = os.statvfs(os.fspath(self._directories[0]).rpartition("/")[0])
        return status.f_bavail * status.f_frsize

    def exceeded(self) -> bool:
        """Whether the limit was found exceeded just now; cheap when called often."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + 0.5
        if self._free - self._free_bytes() < self._limit // 2 and now < self._next_walk:
            return False
        over = disk_usage(self._directories, self._limit) > self._limit
        end = time.monotonic()
        self._next = end + max(0.5, 20 * (end - now))
        self._next_walk = end + max(15, 20 * (end - now))
        return over
