"""Where each key and value of a TOML text stands.

tomllib gives values without places. This scanner gives places without values, for a text that
tomllib has accepted; of any other text it gives what it saw up to the first thing it could not
read, and the keys that were given twice. It runs only when there is a problem to report.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

KeyPath = tuple[str | int, ...]

MAX_KEY_PARTS = 64
"""A dotted key with more parts is refused: tomllib takes time quadratic in their number."""

_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_REST = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n\r]+")
_BASIC = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_LITERAL = re.compile(r"'([^'\n]*)'")
_ML_BASIC = re.compile(r'"""(?:[^"\\]|\\.|"(?!"")|"(?="""))*"""', re.DOTALL)
_ML_LITERAL = re.compile(r"'''(?:[^']|'(?!'')|'(?='''))*'''")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


class _StopError(Exception):
    """Something that is not TOML: the scan ends here."""


@dataclass(frozen=True, slots=True)
class Twice:
    """A key that was given a second time; line and column of both."""

    path: KeyPath
    first: tuple[int, int]
    second: tuple[int, int]


@dataclass(slots=True)
class Positions:
    """The places, by key path: `("outputs", "quickstart", "components", 0)`."""

    _lines: list[int]
    _keys: dict[KeyPath, int] = field(default_factory=dict)
    _values: dict[KeyPath, int] = field(default_factory=dict)
    twice: Twice | None = None
    too_deep: tuple[int, int] | None = None
    moved: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Paths whose parts stand elsewhere in the text (adapters/toml/defaults.py)."""

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a character offset; columns count characters."""
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def locate(self, path: KeyPath, at: Literal["key", "value"] = "value") -> tuple[int, int]:
        """Line and column of the key or the value at `path`, or of the nearest thing around it."""
        here = self.written(path)
        while here:
            first, second = (
                (self._keys, self._values) if at == "key" else (self._values, self._keys)
            )
            offset = first.get(here, second.get(here))
            if offset is not None:
                return self.place(offset)
            here = here[:-1]
        return 1, 1

    def has(self, path: KeyPath) -> bool:
        """Whether something stands at exactly `path`."""
        path = self.written(path)
        return path in self._values or path in self._keys

    def written(self, path: KeyPath) -> KeyPath:
        """The path under which a thing stands in the text."""
        for length in range(len(path), 0, -1) if self.moved else ():
            source = self.moved.get(path[:length])
            if source is not None:
                return (*source, *path[length:])
        return path


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        starts = [0] + [match.end() for match in re.finditer("\n", text)]
        self.found = Positions(starts)
        self.arrays: dict[KeyPath, int] = {}
        self.headers: dict[KeyPath, int] = {}
        self.assigned: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        while True:
            self.skip(_BLANK)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.expect(_REST)

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()

    def expect(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise _StopError
        self.at = match.end()
        return match

    def take(self, token: str) -> bool:
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def key(self) -> list[tuple[str, int]]:
        """A dotted key: each part with its offset."""
        parts: list[tuple[str, int]] = []
        while True:
            self.skip(_SPACE)
            start = self.at
            if len(parts) == MAX_KEY_PARTS:
                self.found.too_deep = self.found.place(parts[0][1])
                raise _StopError
            if self.text.startswith('"', start):
                parts.append((_unescape(self.expect(_BASIC)[1]), start))
            elif self.text.startswith("'", start):
                parts.append((self.expect(_LITERAL)[1], start))
            else:
                parts.append((self.expect(_BARE)[0], start))
            self.skip(_SPACE)
            if not self.take("."):
                return parts

    def twice(self, path: KeyPath, first: int, second: int) -> None:
        self.found.twice = Twice(path, self.found.place(first), self.found.place(second))
        raise _StopError

    def header(self) -> KeyPath:
        start = self.at
        many = self.take("[[")
        if not many:
            self.take("[")
        path: KeyPath = ()
        parts = self.key()
        for name, offset in parts:
            path = self.into_last(path)
            path = (*path, name)
            self.found._keys.setdefault(path, offset)
        if not self.take("]]" if many else "]"):
            raise _StopError
        offset = parts[-1][1]
        if path in self.assigned:
            self.twice(path, self.assigned[path], offset)
        if many:
            self.found._values.setdefault(path, start)
            index = self.arrays[path] = self.arrays.get(path, -1) + 1
            path = (*path, index)
        elif path in self.headers or path in self.arrays:
            self.twice(path, self.headers.get(path, self.found._keys[path]), offset)
        else:
            self.headers[path] = offset
        self.found._values.setdefault(path, start)
        return path

    def into_last(self, path: KeyPath) -> KeyPath:
        return (*path, self.arrays[path]) if path in self.arrays else path

    def pair(self, table: KeyPath) -> None:
        path = table
        parts = self.key()
        for name, offset in parts:
            path = (*path, name)
            self.found._keys.setdefault(path, offset)
            if path in self.assigned:
                self.twice(path, self.assigned[path], offset)
        last = parts[-1][1]
        if path in self.headers:
            self.twice(path, self.headers[path], last)
        if path in self.arrays:
            self.twice(path, self.found._keys[path], last)
        if not self.take("="):
            raise _StopError
        self.skip(_SPACE)
        self.assigned[path] = last
        self.value(path)

    def value(self, path: KeyPath) -> None:
        self.found._values.setdefault(path, self.at)
        if self.text.startswith('"""', self.at):
            self.expect(_ML_BASIC)
        elif self.text.startswith("'''", self.at):
            self.expect(_ML_LITERAL)
        elif self.text.startswith('"', self.at):
            self.expect(_BASIC)
        elif self.text.startswith("'", self.at):
            self.expect(_LITERAL)
        elif self.take("["):
            self.array(path)
        elif self.take("{"):
            self.inline(path)
        else:
            self.expect(_SCALAR)

    def array(self, path: KeyPath) -> None:
        index = 0
        while True:
            self.skip(_BLANK)
            if self.take("]"):
                return
            self.value((*path, index))
            index += 1
            self.skip(_BLANK)
            if not self.take(","):
                if not self.take("]"):
                    raise _StopError
                return

    def inline(self, path: KeyPath) -> None:
        self.skip(_SPACE)
        if self.take("}"):
            return
        while True:
            self.pair(path)
            self.skip(_SPACE)
            if self.take("}"):
                return
            if not self.take(","):
                raise _StopError


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[3]:
            return _SHORT.get(match[3], match[3])
        number = int(match[1] or match[2], 16)
        return chr(number) if number < 0x110000 else "\ufffd"

    return _ESCAPE.sub(one, text)


def scan(text: str) -> Positions:
    """The places in `text`, up to the first thing that is no TOML; never raises."""
    scanner = _Scanner(text)
    with suppress(_StopError, RecursionError):
        scanner.document()
    return scanner.found
