"""Files that somebody names on the command line: read whole, and errors of writing them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprobuild.errors import ReprobuildError


def read_document(path: Path, code: str, *, limit: int = 16 * 2**20) -> bytes:
    """A file's bytes; raises `code` when it cannot be read, is no plain file or is too long."""
    try:
        if not path.is_file():
            what = "is no plain file" if path.exists() else "does not exist"
            raise ReprobuildError(code, f"cannot read {path}: it {what}", file=str(path))
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise ReprobuildError(
            code, f"cannot read {path}: {error.strerror}", file=str(path)
        ) from error
    if len(data) > limit:
        raise ReprobuildError(code, f"{path} is longer than {limit} bytes", file=str(path))
    return data


@contextmanager
def write_errors(place: Path) -> Iterator[None]:
    """Turns a failure to write into E-WRITE naming the place."""
    try:
        yield
    except OSError as error:
        raise ReprobuildError(
            "E-WRITE", f"cannot write to {place}: {error.strerror or error}", file=str(place)
        ) from error
