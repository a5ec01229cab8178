"""The name and revision of the release that follows another, and where the old ones are said."""

from __future__ import annotations

import re
from collections.abc import Iterator

RENAMED = frozenset({"container", "description", "file", "title", "volumes"})
"""Keys whose text names the release itself, so that it moves on with the revision."""


def next_revision(revision: str) -> str | None:
    """`r21` → `r22`, `v2-rc9` → `v2-rc10`; None where no number ends it."""
    match = re.fullmatch(r"(.*?)(\d+)", revision, re.DOTALL)
    if match is None:
        return None
    stem, number = match.groups()
    return f"{stem}{int(number) + 1:0{len(number)}d}"


def renamed(text: str, old: str, new: str) -> str:
    """`text` with the revision `old` replaced where it stands as a word of its own."""
    return re.sub(_word(old), lambda _: new, text)


def says(text: str, revision: str) -> bool:
    """Whether `text` has the revision as a word of its own."""
    return re.search(_word(revision), text) is not None


def _word(revision: str) -> str:
    return rf"(?<![A-Za-z0-9]){re.escape(revision)}(?![A-Za-z0-9])"


def mentions(table: object, revision: str, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted places of all texts that still name `revision`, in their order."""
    if isinstance(table, str):
        if says(table, revision):
            yield ".".join(path)
    elif isinstance(table, dict):
        for key, value in table.items():
            yield from mentions(value, revision, (*path, str(key)))
    elif isinstance(table, list):
        for index, value in enumerate(table):
            yield from mentions(value, revision, (*path, str(index)))
