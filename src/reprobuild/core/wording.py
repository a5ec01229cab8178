"""Numbers, and what is wrong with a JSON text, for people."""

from __future__ import annotations


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "size unknown"
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def plural(count: int, word: str) -> str:
    """`1 layer`, `2 layers`."""
    ending = "" if count == 1 else "ies" if word.endswith("y") else "s"
    return f"{count} {word[:-1] if ending == 'ies' else word}{ending}"


def json_problem(error: ValueError | RecursionError) -> str:
    """Why `json` could not read a text, without its advice to programmers."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "integer string conversion" in str(error):  # int() refuses, as it would take very long
        return "a number in it has thousands of digits"
    return f"{error!s:.200}"
