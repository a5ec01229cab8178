"""Small parts of Markdown: escaped cells, tables, wrapped paragraphs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 100


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines; a `|` or line break in a cell cannot end it."""
    lines = [_row(head), _row(["---"] * len(head))]
    return lines + [_row(row) for row in rows]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text as code, whatever backticks are in it; nothing for nothing."""
    if not text:
        return ""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def paragraphs(text: str, indent: str = "") -> list[str]:
    """The lines of prose, wrapped; blocks in fences and lists stay as they are."""
    out: list[str] = []
    fenced = False
    gathered: list[str] = []

    def flush() -> None:
        if gathered:
            out.extend(
                textwrap.wrap(
                    " ".join(gathered),
                    WIDTH,
                    initial_indent=indent,
                    subsequent_indent=indent,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
            gathered.clear()

    for line in text.strip("\n").split("\n"):
        bare = line.strip()
        if bare.startswith("```"):
            flush()
            fenced = not fenced
            out.append(indent + bare)
        elif fenced:
            out.append((indent + line).rstrip())
        elif not bare:
            flush()
            if out and out[-1]:
                out.append("")
        elif bare.startswith(("- ", "* ", "| ")):
            flush()
            out.append(indent + line.rstrip())
        else:
            gathered.append(bare)
    flush()
    return out
