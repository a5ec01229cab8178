"""Files beside a flake or a manifest: read without ever leaving their directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

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
            import stat

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
