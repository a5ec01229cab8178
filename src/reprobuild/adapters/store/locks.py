"""Advisory locks by flock(2): exclusive or shared, close-on-exec, released when the owner dies.

flock belongs to the open file description, so it also excludes the threads of one process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from contextlib import contextmanager

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.dirlock import same_file
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that or pathlib
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def _open(path: str | Path) -> int:
    """A lock's file, made when absent. That of another account need only be readable."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o644)
    except PermissionError:
        try:
            return os.open(path, os.O_RDONLY | _SAFE)
        except FileNotFoundError:
            pass  # it cannot be made: that it is absent is not the matter
        raise


@contextmanager
def exclusive(path: str) -> Iterator[None]:
    """Holds the lock named by `path`, alone; its file is gone when nobody holds it."""
    with durable.writing(os.path.dirname(path), "a lock"):
        fd = _acquire(path)
    try:
        yield
    finally:
        # Unlinked while it is held: whoever waits on this inode sees that the name moved on.
        try:
            durable.forget(path)
        finally:
            os.close(fd)


def _acquire(path: str) -> int:
    while True:
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if same_file(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


@contextmanager
def lease(path: Path) -> Iterator[None]:
    """Holds the store's lock shared: collection waits."""
    with durable.writing(path.parent, "the store's lock"):
        fd = _open(path)
    try:
        with durable.writing(path.parent, "the store's lock"):
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextmanager
def looking(path: str | Path) -> Iterator[None]:
    """As `lease`, for who only looks: a store that nobody may write to is looked at without."""
    fd = -1
    try:
        with contextlib.suppress(OSError):
            fd = (
                _open(path)
                if os.access(os.path.dirname(path), os.W_OK)
                else os.open(path, os.O_RDONLY | _SAFE)
            )
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        if fd >= 0:
            os.close(fd)


@contextmanager
def sole(path: Path, *, wait: bool) -> Iterator[None]:
    """Holds the store's lock alone; raises E-STORE-BUSY when leases are out and not `wait`."""
    with durable.writing(path.parent, "the store's lock"):
        fd = _open(path)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise ReprobuildError(
                "E-STORE-BUSY", f"the store at {path.parent.parent} is in use", path=str(path)
            ) from error
        yield
    finally:
        os.close(fd)


def remove_unheld(path: Path) -> None:
    """Removes the file of an `exclusive` lock that nobody holds."""
    try:
        fd = os.open(path, os.O_RDONLY | _SAFE)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if same_file(fd, path):
            durable.forget(path)
    except BlockingIOError:
        pass
    finally:
        os.close(fd)
