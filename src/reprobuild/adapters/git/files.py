"""Files beside a flake or a manifest: read without ever leaving their directory."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Self

from reprobuild.adapters.places import TEMPORARY, is_stream
from reprobuild.core.integration.model import check_patch_path
from reprobuild.errors import ReprobuildError

LIMIT = 256 * 2**20


def read_below(directory: Path, path: str, *, limit: int = LIMIT) -> bytes:
    """A plain file's bytes; `path` is relative to `directory` and no part of it is a link.

    Raises E-PATCH when it is missing, no plain file or longer than `limit` bytes, E-INTEGRATION
    for a path that leads outside.
    """
    parts = check_patch_path(path).split("/")
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(part, flags, dir_fd=here)
            os.close(here)
            here = below
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(parts[-1], flags, dir_fd=here), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ReprobuildError("E-PATCH", f"{path} is no plain file", file=path)
            data = file.read(limit + 1)
    except FileNotFoundError as error:
        raise ReprobuildError("E-PATCH", f"{path} does not exist", file=path) from error
    except OSError as error:
        raise ReprobuildError(
            "E-PATCH", f"{path} cannot be read: {error.strerror} (links are refused)", file=path
        ) from error
    finally:
        os.close(here)
    if len(data) > limit:
        raise ReprobuildError("E-PATCH", f"{path} is longer than {limit} bytes", file=path)
    return data


def reader_below(directory: Path) -> Callable[[str], bytes]:
    """`read_below` bound to a directory."""
    return lambda path: read_below(directory, path)


class Pending:
    """A file that takes its name only when it is whole; leaves nothing behind otherwise."""

    def __init__(self, target: Path) -> None:
        self._target = target
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=target.parent)
        self.temporary = Path(name)
        self.file: BinaryIO = os.fdopen(handle, "wb")

    def __enter__(self) -> Self:
        return self

    def commit(self) -> None:
        """Makes it durable and gives it its name, with the mode of the file it replaces."""
        try:
            mode = stat.S_IMODE(self._target.stat().st_mode)
        except FileNotFoundError:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        self.file.flush()
        os.fchmod(self.file.fileno(), mode)
        os.fsync(self.file.fileno())
        self.file.close()
        self.temporary.replace(self._target)

    def __exit__(self, *_: object) -> None:
        try:
            self.file.close()  # writes what is buffered: the disk may be full
        finally:
            self.temporary.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Gives a file new content, whole or not at all; a device or FIFO there is written to."""
    if is_stream(path):
        path.write_bytes(content)
        return
    with Pending(path) as pending:
        pending.file.write(content)
        pending.commit()
