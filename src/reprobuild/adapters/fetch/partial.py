"""The directory of cut downloads: `<sha256>` holds the first bytes of that content.

A file here is only ever a hint: it is hashed before it counts. One process at a time works on
one digest, by a lock that dies with its owner.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.errors import ReprobuildError


def disk_error(error: OSError, path: Path) -> ReprobuildError:
    """An error of the local disk while writing a download."""
    code = "E-DISK-FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "E-FETCH"
    return ReprobuildError(
        code,
        f"a download could not be written below {path}: {error.strerror}",
        hint=None if code == "E-DISK-FULL" else "make the directory writable",
        file=str(path),
    )


def ensure(directory: Path) -> None:
    """Makes the directory, private to this user; raises E-DISK-FULL or E-FETCH."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, directory) from None


def open_partial(path: Path) -> BinaryIO:
    """The partial file, open for reading and writing, made when absent; links are not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.fdopen(os.open(path, flags, 0o600), "r+b")
    except OSError as error:
        raise disk_error(error, path) from None
    if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        handle.close()
        raise ReprobuildError("E-FETCH", f"{path} is no regular file", hint="remove it")
    return handle


@contextmanager
def exclusive(path: Path, settings: FetchSettings) -> Iterator[None]:
    """Holds `path` as a lock file among threads and processes; removes it at the end.

    Raises E-INTERRUPTED when `settings.cancel` is set while waiting.
    """
    descriptor = _acquire(path, settings)
    try:
        yield
    finally:
        # Unlinked while it is held: whoever waits on this inode sees that it lost its name.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path, settings: FetchSettings) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise disk_error(error, path) from None
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if settings.cancel.wait(0.1):
                        raise ReprobuildError(
                            "E-INTERRUPTED", "interrupted while another process fetches"
                        ) from None
            if _still_named(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _still_named(path: Path, descriptor: int) -> bool:
    try:
        named = path.lstat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
