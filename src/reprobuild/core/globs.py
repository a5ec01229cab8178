"""Path patterns: which entries of a tree or an archive are meant.

`*` and `?` stay within one component, `[…]` is a set, `**` spans any number of components. A
pattern that matches a directory means everything below it too. Patterns have no leading `/`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprobuild.errors import ReprobuildError


def _component(text: str) -> str:
    out = ""
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[":
            end = text.find("]", position + 1)
            if end < 0:
                raise ReprobuildError("E-PARAMS", f"the pattern {text!r} has a `[` with no `]`")
            body = text[position:end]
            negated = body.startswith("!")
            body = re.sub(r"([\\\[\]^&~|])", r"\\\1", body[1:] if negated else body)
            out += f"(?!/)[{'^' if negated else ''}{body}]"
            position = end + 1
        else:
            out += re.escape(char)
    return out


def _regex(pattern: str) -> str:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if pattern.startswith("/") or ".." in parts or not parts:
        raise ReprobuildError(
            "E-PARAMS", f"the pattern {pattern!r} must be a relative path without `..`"
        )
    out = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            out += ".+" if last else "(?:[^/]+/)*"
        else:
            out += _component(part) + ("" if last else "/")
    return f"{out}(?:/.*)?"


def _compile(patterns: Sequence[str]) -> re.Pattern[str] | None:
    if not patterns:
        return None
    try:
        return re.compile("|".join(f"(?:{_regex(p)})" for p in patterns), re.DOTALL)
    except re.error as error:
        raise ReprobuildError("E-PARAMS", f"a pattern cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Selection:
    """What `include` (nothing: everything) takes and `exclude` does not take away again."""

    include: re.Pattern[str] | None
    exclude: re.Pattern[str] | None

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> Selection:
        """Raises E-PARAMS for a pattern that cannot be read."""
        return cls(_compile(include), _compile(exclude))

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self.include is None and self.exclude is None

    def takes(self, path: bytes) -> bool:
        """Whether the entry at `path` (relative, `/`-separated) is taken."""
        text = path.decode("utf-8", "surrogateescape")
        if self.include is not None and not self.include.fullmatch(text):
            return False
        return self.exclude is None or not self.exclude.fullmatch(text)

    def drops(self, path: bytes) -> bool:
        """Whether `path` and all below it is excluded outright."""
        text = path.decode("utf-8", "surrogateescape")
        return self.exclude is not None and self.exclude.fullmatch(text) is not None
