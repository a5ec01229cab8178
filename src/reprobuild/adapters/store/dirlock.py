"""A directory's own lock by flock(2): what says that the process which works in it still lives.

Apart from the other locks (locks.py), since who only adds content needs no more than this.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False  # as typing has it, without importing that or pathlib
if TYPE_CHECKING:
    from pathlib import Path


def same_file(fd: int, path: str | Path) -> bool:
    """Whether `path` still names what `fd` is open on."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


def try_directory(path: str | Path) -> int | None:
    """A directory's own lock: the descriptor that holds it, or None when another does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if same_file(fd, path):
            return fd
    except BlockingIOError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None
