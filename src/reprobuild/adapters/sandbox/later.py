"""Removing small work directories at the end of a run instead of after each build.

ext4 passes over every inode that was freed in the last minutes, one by one, whenever it makes a
new one near by. A build that lasts milliseconds frees half a dozen, and after some hundred builds
the search takes longer than all else that is done for one. What a build has left is therefore kept
while it is small, hardly anything is kept already, and the disk has room.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from reprobuild.adapters.sandbox.removal import remove_tree
from reprobuild.errors import ReprobuildError

SMALL = 48 * 2**10
"""Bytes of disk, and 1 KiB for each entry, that a directory may take to be kept for later."""

MOST = 4096
"""Directories that are kept at a time."""

_REMOVERS = 8
_ENTRY, _DIRECTORY = 1024, 4096
_ROOM_BYTES, _ROOM_INODES = 4 * 2**30, 400_000
_LOOK_EVERY = 64


class Later:
    """Work directories that are to go. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._kept: list[Path] = []
        self._room = False
        self._asked = 0

    @contextmanager
    def batch(self) -> Iterator[None]:
        """While it is open, `remove` may leave things to its end, which raises as `remove` does."""
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                kept, self._kept = (self._kept, []) if not self._open else ([], self._kept)
            _remove_all(kept)

    def remove(self, directory: Path) -> None:
        """Removes a directory now or at the end of the batch. Raises E-SANDBOX-SETUP."""
        if self._open and self._has_room(directory) and _is_small(directory):
            with self._lock:
                if self._open and len(self._kept) < MOST:
                    self._kept.append(directory)
                    return
        _remove(directory)

    def _has_room(self, directory: Path) -> bool:
        with self._lock:
            if self._asked % _LOOK_EVERY == 0:
                found = os.statvfs(directory)
                inodes = not found.f_files or found.f_favail >= _ROOM_INODES
                self._room = inodes and found.f_bavail * found.f_frsize >= _ROOM_BYTES
            self._asked += 1
            return self._room


def _is_small(directory: Path) -> bool:
    """Nothing runs there any more, so this may go by paths, unlike usage.py, and by few calls."""
    total, pending = 0, [os.fspath(directory)]
    try:
        while pending and total <= SMALL:
            with os.scandir(pending.pop()) as listing:
                for entry in listing:
                    total += _ENTRY
                    if entry.is_dir(follow_symlinks=False):
                        total += _DIRECTORY
                        pending.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return False
    return total <= SMALL


def _remove_all(directories: list[Path]) -> None:
    """By several threads: a file system that tells its disk of every block it frees (mounted with
    `discard`) mostly waits."""
    if not directories:
        return
    with ThreadPoolExecutor(min(_REMOVERS, len(directories)), "remove") as pool:
        done = [pool.submit(_remove, directory) for directory in directories]
    for future in done:
        future.result()


def _remove(directory: Path) -> None:
    try:
        remove_tree(directory)
    except OSError as error:
        raise ReprobuildError(
            "E-SANDBOX-SETUP",
            f"{directory} cannot be removed: {error}",
            hint="remove it by hand",
            file=os.fspath(directory),
        ) from error
