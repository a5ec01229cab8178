"""The directory of cut downloads: `<sha256>` holds the first bytes of that content.

A file here is only ever a hint: it is hashed before it counts. One process at a time works on
one digest, by a lock that dies with its owner.

All of it is private to the account, except in a store that the accounts of a group share: there
one goes on where another was cut, and waits for its lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.store.durable import is_shared
from reprobuild.errors import ReprobuildError

_UNFOLLOWED = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_SHARED = 0o660
"""Files that any account of the group goes on with."""


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
    """Makes the directory; raises E-DISK-FULL or E-FETCH.

    Private to this user, or shared where the directory that it lies in is.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_shared(directory.parent) and not is_shared(directory):
            _share_all(directory)
    except OSError as error:
        raise disk_error(error, directory) from None


def _share_all(directory: Path) -> None:
    """The directory, and what of ours is in it, for the group; another's is for it to share."""
    if directory.stat().st_uid != os.geteuid():
        return
    for entry in os.scandir(directory):
        if entry.is_file(follow_symlinks=False) and entry.stat().st_uid == os.geteuid():
            # By descriptor: not every C library changes modes without following links.
            descriptor = os.open(entry.path, os.O_RDONLY | _UNFOLLOWED)
            try:
                os.fchmod(descriptor, _SHARED)
            finally:
                os.close(descriptor)
    directory.chmod(0o2775)


def share(descriptor: int, directory: Path) -> None:
    """Lets the other accounts go on with a new file, where they share its directory."""
    if is_shared(directory):
        os.fchmod(descriptor, _SHARED)


def _open(path: Path) -> int:
    """A file, open for reading and writing, made when absent; links are not followed.

    It has its mode before it has its name: whoever finds it, may open it.
    """
    flags = os.O_RDWR | _UNFOLLOWED
    if not is_shared(path.parent):
        return os.open(path, flags | os.O_CREAT, 0o600)
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        descriptor, temporary = tempfile.mkstemp(prefix="new-", dir=path.parent)
        try:
            os.fchmod(descriptor, _SHARED)
            os.link(temporary, path)
            return descriptor
        except FileExistsError:
            os.close(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            os.unlink(temporary)  # noqa: PTH108


def open_partial(path: Path) -> BinaryIO:
    """The partial file, open for reading and writing, made when absent; links are not followed."""
    try:
        handle = os.fdopen(_open(path), "r+b")
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
            descriptor = _open(path)
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
