"""Exit statuses, and what one row of the table of error codes holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of the command line (a contract: scripts are written against them)."""

    USAGE = 2
    INPUT = 3
    SOURCES = 4
    BUILD = 5
    NOT_REPRODUCIBLE = 6
    STORE = 7
    OFFLINE = 8
    CHECK = 9
    ENVIRONMENT = 10
    BUG = 70
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Code:
    """One row of docs/errors.md: what the code means and what a user usually does about it."""

    exit: Exit
    meaning: str
    remedy: str
