"""The pattern language of image tags.

    {NAME}               codename, revision, date (YYYYMMDD), or a name in release.runtime, whose
                         version is written short (13.3 as 133); {NAME.version} is the whole
    {COMPONENT.FIELD}    tree, commit, version or drv of a component that is in the image
    {COMPONENT.FIELD:N}  its first N characters; {NAME:N} likewise

Everything else stands for itself. What comes out must be a tag as OCI's distribution
specification has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.errors import ReprobuildError

FACTS = ("codename", "revision", "date")
FIELDS = ("tree", "commit", "version", "drv")

TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_PLACEHOLDER = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_+-]*(?:\.[A-Za-z0-9_+-]+)?)(?::(?P<length>[1-9][0-9]{0,2}))?\Z"
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What stands in braces: a name, with the number of characters that are kept (None: all)."""

    name: str
    length: int | None = None

    @property
    def component(self) -> str:
        """The component that is spoken of; empty for a fact of the release."""
        return self.name.partition(".")[0] if "." in self.name else ""

    @property
    def field(self) -> str:
        """`tree`, `commit`, `version`…; empty for a fact of the release."""
        return self.name.partition(".")[2]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern: literal text and placeholders, in order."""

    parts: tuple[str | Placeholder, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """From its text; raises ValueError that says what is wrong and at which character.

        Names are not judged here: which of them there are depends on the output.
        """
        parts: list[str | Placeholder] = []
        position = 0
        while position < len(text):
            brace = re.compile(r"[{}]").search(text, position)
            if brace is None:
                parts.append(text[position:])
                break
            if brace[0] == "}":
                raise ValueError(f"a '}}' without its '{{' at character {brace.start() + 1}")
            if brace.start() > position:
                parts.append(text[position : brace.start()])
            end = text.find("}", brace.end())
            if end < 0:
                raise ValueError(f"a '{{' without its '}}' at character {brace.start() + 1}")
            inside = text[brace.end() : end]
            match = _PLACEHOLDER.match(inside)
            if match is None:
                raise ValueError(
                    f"{{{inside[:80]}}} is no placeholder; "
                    "expected {NAME}, {COMPONENT.FIELD} or {COMPONENT.FIELD:N}"
                )
            parts.append(Placeholder(match["name"], int(match["length"] or 0) or None))
            position = end + 1
        return cls(tuple(parts))

    def placeholders(self) -> tuple[Placeholder, ...]:
        """The placeholders in order, repeated ones repeated."""
        return tuple(part for part in self.parts if isinstance(part, Placeholder))

    def names(self) -> tuple[str, ...]:
        """The names that `render` must be told, each once, in order of appearance."""
        return tuple(dict.fromkeys(part.name for part in self.placeholders()))

    def render(self, values: Mapping[str, str]) -> str:
        """The text with every name replaced.

        `values` maps each of `names()` to its text. Raises E-FLAKE when one is missing, or when
        the result is no OCI tag.
        """
        out: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                out.append(part)
                continue
            if part.name not in values:
                raise ReprobuildError(
                    "E-FLAKE", f"the tag pattern's {{{part.name}}} has no value", key=part.name
                )
            out.append(values[part.name][: part.length])
        text = "".join(out)
        reason = tag_problem(text)
        if reason:
            raise ReprobuildError("E-FLAKE", f"the tag pattern gives no OCI tag: {reason}")
        return text


def tag_problem(text: str) -> str:
    """Why `text` is no OCI tag; empty when it is one."""
    if TAG.match(text):
        return ""
    if not text:
        return "it is empty"
    if len(text) > 128:
        return f"it has {len(text)} characters; a tag has at most 128"
    if text[0] in ".-":
        return f"it begins with {text[0]!r}; a tag begins with a letter, a digit or '_'"
    bad = next(c for c in text if not re.match(r"[A-Za-z0-9._-]", c))
    return f"{bad!r} in {text!r}; a tag has letters, digits, '.', '_' and '-'"
