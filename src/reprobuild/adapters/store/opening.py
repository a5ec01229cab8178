"""Opening what is to be read by descriptor, also what its owner made unreadable."""

from __future__ import annotations

import os
from stat import S_IFLNK, S_IFMT, S_IMODE, S_IRUSR, S_IRWXU

from reprobuild.adapters.store.dirstack import DIRECTORY

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_directory(name: bytes, directory: int | None) -> tuple[int, os.stat_result]:
    """A descriptor of the directory `name` and what it is; raises OSError."""
    try:
        fd = os.open(name, DIRECTORY, dir_fd=directory)
    except PermissionError:
        fd, _ = _open_closed(name, directory, DIRECTORY, S_IRWXU)
    info = os.fstat(fd)
    if info.st_mode & S_IRWXU != S_IRWXU and os.geteuid() != 0:
        if info.st_uid == os.geteuid():
            os.fchmod(fd, S_IRWXU)  # readable, but its names cannot be opened
        info = os.fstat(fd)
    return fd, info


def open_closed_file(name: bytes, directory: int) -> tuple[int, int]:
    """A descriptor of a file of ours that cannot be read as it is, and the mode it had.

    Raises OSError.
    """
    return _open_closed(name, directory, FILE, S_IRUSR)


def reopen(root: int, path: tuple[bytes, ...]) -> int:
    """A descriptor of the directory at `path` below `root`, no link followed; raises OSError."""
    fd = os.open(".", DIRECTORY, dir_fd=root)
    for name in path:
        try:
            below = os.open(name, DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _open_closed(name: bytes, directory: int | None, flags: int, needed: int) -> tuple[int, int]:
    # O_PATH pins the inode, so the mode that changes is that of the very file, not of what
    # a link put in its place leads to.
    pinned = os.open(name, _PATH, dir_fd=directory)
    try:
        info = os.fstat(pinned)
        if info.st_uid != os.geteuid() or S_IFMT(info.st_mode) == S_IFLNK:
            raise PermissionError(13, "not readable, and another user's")
        there = f"/proc/self/fd/{pinned}"
        os.chmod(there, S_IMODE(info.st_mode) | needed)
        return os.open(there, flags & ~os.O_NOFOLLOW), info.st_mode
    finally:
        os.close(pinned)
