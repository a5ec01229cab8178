"""A file that is written once, at the end of a run: what was seen, in a form that others read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from reprobuild.adapters.places import TEMPORARY
from reprobuild.errors import ReprobuildError


def write_whole(path: Path, data: bytes) -> None:
    """Whole or not at all; raises E-WRITE."""
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
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
