"""Walking down and up a directory tree by descriptors, never by paths.

Whatever is renamed or replaced by a link meanwhile, the walk stays where it is. Few descriptors
are open at any depth: distant ancestors are closed and found again through `..`, which must then
be the same directory as before.
"""

from __future__ import annotations

import os
import stat

from reprobuild.adapters.store import durable

TYPE_CHECKING = False  # as typing has it, without importing that or pathlib
if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_OPEN = 64


class MovedError(Exception):
    """An ancestor is no longer where it was."""


class DirStack:
    """The descriptors from a start directory down to the current one; owns all of them."""

    def __init__(self, fd: int) -> None:
        self._fds: list[int] = [fd]
        self._identities: list[tuple[int, int]] = [_identity(fd)]

    @property
    def top(self) -> int:
        """The current directory."""
        return self._fds[-1]

    @property
    def depth(self) -> int:
        """0 at the start directory."""
        return len(self._fds) - 1

    def push(self, fd: int) -> None:
        """Goes down into `fd`."""
        self._identities.append(_identity(fd))
        self._fds.append(fd)
        far = len(self._fds) - _KEPT_OPEN
        if far >= 0 and self._fds[far] >= 0:
            os.close(self._fds[far])
            self._fds[far] = -1

    def pop(self) -> None:
        """Goes up; raises MovedError when the parent is another directory than before."""
        fd = self._fds.pop()
        self._identities.pop()
        try:
            if self._fds and self._fds[-1] < 0:
                parent = os.open("..", DIRECTORY, dir_fd=fd)
                self._fds[-1] = parent
                if _identity(parent) != self._identities[-1]:
                    raise MovedError
        finally:
            os.close(fd)

    def __enter__(self) -> DirStack:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for fd in self._fds:
            if fd >= 0:
                os.close(fd)
        self._fds.clear()


def _identity(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


def remove_tree(path: str) -> None:
    """Removes a directory of ours and everything in it, read-only or not; links not followed."""
    root = os.open(path, DIRECTORY)
    with DirStack(root) as stack:
        frames = [(b"", _clear(stack.top))]
        while True:
            name, below = frames[-1]
            if below:
                child = below.pop()
                stack.push(os.open(child, DIRECTORY, dir_fd=stack.top))
                frames.append((child, _clear(stack.top)))
                continue
            frames.pop()
            if not frames:
                break
            stack.pop()
            durable.rmdir(name, dir_fd=stack.top)
    durable.rmdir(path)


def discard(path: str | Path) -> None:
    """The same as far as that can be done; collection does the rest."""
    try:
        remove_tree(str(path))
    except OSError:
        return


def remove_any(path: str) -> bool:
    """Removes a file or a directory; False when that takes the account that made it."""
    info = os.lstat(path)
    try:
        if stat.S_ISDIR(info.st_mode):
            remove_tree(path)
        else:
            durable.unlink(path)
    except PermissionError:
        if info.st_uid == os.geteuid():
            raise
        return False
    return True


def _clear(fd: int) -> list[bytes]:
    durable.fchmod(fd, 0o700)
    below: list[bytes] = []
    with os.scandir(fd) as entries:
        found = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
    for name, is_directory in found:
        if is_directory:
            below.append(name)
        else:
            durable.unlink(name, dir_fd=fd)
    return below
