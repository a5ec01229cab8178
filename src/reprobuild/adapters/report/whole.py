"""A file that is written once, at the end of a run: what was seen, in a form that others read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from reprobuild.adapters.places import check_replaceable
from reprobuild.errors import ReprobuildError


def check_place(path: Path, option: str) -> None:
    """Raises E-USAGE before anything is begun, where the file could not be written at the end."""
    check_replaceable(path, option)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ReprobuildError("E-USAGE", f"{option} {path} cannot be written", file=str(path))


def write_whole(path: Path, data: bytes) -> None:
    """Whole or not at all; raises E-WRITE."""
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise ReprobuildError(
            "E-WRITE", f"{path} cannot be written: {error.strerror}", file=str(path)
        ) from error
