"""Reading a small file of the store whole: whatever lies there in its place is not waited for."""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR, S_ISREG

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How any file of the store is opened to be read: a FIFO opens at once, a link does not."""
_PIECE = 2**20


def read_file(path: str | os.PathLike[str], limit: int = -1) -> bytes:
    """A regular file's bytes, at most `limit` when given; OSError, for anything else as well."""
    try:
        fd = os.open(path, READ)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise _irregular(path) from None
        raise
    try:
        info = os.fstat(fd)
        if not S_ISREG(info.st_mode):
            if S_ISDIR(info.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise _irregular(path)
        if limit >= 0:
            return os.read(fd, limit)
        data = os.read(fd, info.st_size + 1)
        if len(data) != info.st_size:  # long, or it grows
            while more := os.read(fd, _PIECE):
                data += more
        return data
    finally:
        os.close(fd)


def _irregular(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, "It is no regular file", path)
