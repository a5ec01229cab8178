"""Removing small work directories at the end of a run instead of after each build.

ext4 passes over every inode that was freed in the last minutes, one by one, whenever it makes a
new one near by. A build that lasts milliseconds frees half a dozen, and after some hundred builds
the search takes longer than all else that is done for one. What a build has left is therefore kept
while it is small, hardly anything is kept already, and the disk has room. At the end rm(1) removes
it while this process records and answers; what it leaves, for want of a permission or because it is
not there, is removed here.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from reprobuild.adapters.sandbox.removal import remove_tree
from reprobuild.errors import ReprobuildError

SMALL = 48 * 2**10
"""Bytes of disk, and 1 KiB for each entry, that a directory may take to be kept for later."""

MOST = 4096
"""Directories that are kept at a time."""

REMOVER = "rm"
_REMOVERS = 4
"""So many at a time: a file system that tells its disk of every block it frees (mounted with
`discard`) mostly waits."""
_WORTH = 8
"""Directories for which another process is started: it takes as long as these do here."""

_ENTRY, _DIRECTORY = 1024, 4096
_ROOM_BYTES, _ROOM_INODES = 4 * 2**30, 400_000
_LOOK_EVERY = 64


class Later:
    """Work directories that are to go. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._kept: list[Path] = []
        self._going: list[_Going] = []
        self._room = False
        self._asked = 0

    @contextmanager
    def batch(self) -> Iterator[None]:
        """While it is open, `remove` may leave things to its end. An inner batch's end begins to
        remove them; when the outermost has ended all are gone, or it raises as `remove` does."""
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                kept, self._kept = self._kept, []
                self._going += _begin(kept)
                over, self._going = ([], self._going) if self._open else (self._going, [])
            _finish(over)

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
                try:
                    found = os.statvfs(directory)
                except OSError:  # somebody removed it: there is nothing to keep
                    return False
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


class _Going:
    """Directories that `process` removes; None leaves them to `_finish`."""

    def __init__(
        self, directories: Sequence[Path], process: subprocess.Popen[bytes] | None
    ) -> None:
        self.directories = directories
        self.process = process


def _begin(directories: list[Path]) -> list[_Going]:
    """Has other processes begin; they go on to the end whatever becomes of this one."""
    processes = min(_REMOVERS, len(directories) // _WORTH)
    parts = [directories[start::processes] for start in range(processes)] or [directories]
    return [_Going(part, _remover(part) if processes else None) for part in parts]


def _remover(directories: Sequence[Path]) -> subprocess.Popen[bytes] | None:
    with suppress(OSError):  # there is none, or no memory for one
        return subprocess.Popen(
            [REMOVER, "-rf", "--", *map(os.fspath, directories)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            start_new_session=True,  # Ctrl-C ends the builds, not this
        )
    return None


def _finish(going: Sequence[_Going]) -> None:
    """Waits, and removes what is left; raises for the first that cannot be, when all were tried."""
    problem: ReprobuildError | None = None
    for part in going:
        if part.process is not None:
            part.process.wait()
        for directory in part.directories:
            try:
                _remove(directory)  # most are gone
            except ReprobuildError as error:
                problem = problem or error
    if problem is not None:
        raise problem


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
