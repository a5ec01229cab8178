"""One thing that is wrong in a file of the project, before anyone knows its line and column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at a key path of a file.

    `file` is relative to the project; `path` leads to the key or value (`at` says which of the
    two is meant); `message` is a finished sentence part; `nearest` is the valid name closest to
    what was written; `expected` and `got` say the same for a program.
    """

    file: str
    path: tuple[str | int, ...]
    message: str
    nearest: str = ""
    at: Literal["key", "value"] = "value"
    expected: str = ""
    got: str = ""


def nearest(name: str, valid: Iterable[str]) -> str:
    """The valid name that `name` was probably meant to be, or ""."""
    if len(name) > 100:
        return ""
    by_fold = {candidate.lower(): candidate for candidate in sorted(valid)}
    close = get_close_matches(name.lower(), list(by_fold), n=1, cutoff=0.6)
    return by_fold[close[0]] if close else ""


def did_you_mean(name: str) -> str:
    """`; did you mean …?`, or nothing."""
    return f"; did you mean `{name}`?" if name else ""


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Names for a message: sorted, comma-separated, cut after `limit`."""
    ordered = sorted(names)
    more = len(ordered) - limit
    text = ", ".join(ordered[:limit])
    return text + (f" and {more} more" if more > 0 else "")


def nearest_of(what: str, name: str, valid: Iterable[str]) -> tuple[str, str, str]:
    """The nearest name, the valid ones as text, and `WHAT NAME; did you mean …? (there is: …)`."""
    names = list(valid)
    near = nearest(name, names)
    there = listed(names) or "none"
    return near, there, f"{what} `{name}`{did_you_mean(near)} (there is: {there})"


def shown(value: object, limit: int = 60) -> str:
    """A value for a message, as TOML would write it, cut and without control characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        cut = value if len(value) <= limit else value[:limit] + "…"
        safe = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)
        return f'"{safe}"'
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 256:
        return "a very large integer"  # str() refuses it
    text = str(value)
    return text if len(text) <= limit else text[:limit] + "…"
