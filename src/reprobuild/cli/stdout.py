"""Standard output that says what it is when it cannot be written.

A full disk and a reader that went away are met wherever something is printed; by errno alone they
could not be told from a file or socket of an adapter.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FAILED = "E-STDOUT"


class ReaderGoneError(Exception):
    """Whoever read our output does not want any more of it."""


class _Raw(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except OSError as error:
            raise ReprobuildError(
                FAILED, f"standard output cannot be written: {error.strerror or error}"
            ) from error


def watch() -> None:
    """From now on writing to sys.stdout raises `ReaderGoneError` or E-STDOUT, and never OSError."""
    old = sys.stdout
    if old is None:  # closed by whoever called us
        return
    old.flush()
    raw = io.BufferedWriter(_Raw(old.fileno(), "w", closefd=False))
    sys.stdout = io.TextIOWrapper(
        raw, encoding=old.encoding, errors=old.errors, line_buffering=old.isatty()
    )


def abandon() -> None:
    """What is still to be written goes nowhere; the interpreter's last flush cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
