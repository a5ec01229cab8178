"""Opening a file that somebody else may have put there: a FIFO, device or directory is refused."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """A regular file, or a link to one, to be read; raises OSError, also for anything else."""
    # O_NONBLOCK: a FIFO must not hang the open; it is refused right after.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            why = "Is a directory" if stat.S_ISDIR(mode) else "It is no regular file"
            raise OSError(number, why, str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, limit: int) -> bytes:
    """A regular file's bytes, at most `limit` of them; raises OSError as `open_regular`."""
    with open_regular(path) as file:
        return file.read(limit)
