"""From a path to TOML data, or to an error that says where and why not."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprobuild.adapters.toml.positions import MAX_KEY_PARTS, KeyPath, Positions, scan
from reprobuild.core.encoding import MAX_INTEGER
from reprobuild.core.problem import shown
from reprobuild.errors import ReprobuildError

MAX_BYTES = 4 * 1024 * 1024
_DEEP = re.compile(
    # Sixteen bare parts in a row, or a dot beside a quote: no longer key lacks both. Every part
    # is tried at its beginning alone, so that a long line takes no longer than it is.
    rf"(?:(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}"
    r"|[\"'][ \t]*\.|\.[ \t]*[\"']"
)
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7})(?: |$)", re.MULTILINE)
_REASONS = {  # tomllib's words, where they are of little help
    "Illegal character '\\n'": "a string is not closed before the end of the line",
    "Unterminated string": "a string is not closed",
    "Unclosed array": "an array is not closed, or a comma is missing in it",
    "Unclosed inline table": "an inline table is not closed, or a comma is missing in it",
    "Invalid value": "expected a value: text in quotes, a number, true, false, a date, [ or {",
    "Invalid statement": "expected `key = value`, a [table] or a comment",
}
_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file that is TOML: its name in messages, its bytes, its text and its data.

    In `data` arrays are tuples, because the models are strict.
    """

    name: str
    raw: bytes
    text: str
    data: dict[str, Any]
    moved: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Where in the text a part of `data` stands, when it is not where `data` has it."""

    def positions(self) -> Positions:
        """The places of keys and values; costs a scan, so only for a message."""
        found = scan(self.text)
        found.moved = self.moved
        return found


def read_toml(path: Path, name: str, code: str) -> Parsed:
    """Reads and parses `path`; `name` stands for it in messages.

    Raises `code` for a file that is missing, no regular file, unreadable, larger than 4 MiB, not
    UTF-8, no TOML, or with a number that no canonical document can hold; with `line` and `column`
    where there are any.
    """
    raw = _read(path, name, code)
    text = _decode(raw, name, code)
    data = _parse(text, name, code)
    large = _too_large(data)
    if large is not None:
        raise _out_of_range(code, name, text, *large)
    return Parsed(name, raw, text, data)


def _read(path: Path, name: str, code: str) -> bytes:
    try:
        # O_NONBLOCK: a FIFO in the file's place must not hang the program.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                what = "a directory" if stat.S_ISDIR(mode) else "no regular file"
                raise ReprobuildError(code, f"{name} is {what}", file=name)
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ReprobuildError(
            code, f"{name} cannot be read: {reason}", file=name, hint=_read_hint(error)
        ) from error
    except ValueError as error:  # a NUL in the path
        raise ReprobuildError(code, f"{name} cannot be read: {error}", file=name) from error
    if len(raw) > MAX_BYTES:
        raise ReprobuildError(
            code,
            f"{name} is larger than {MAX_BYTES // 2**20} MiB",
            file=name,
            hint="such a file holds no data; keep large things beside it",
        )
    return raw


def _read_hint(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "make the file, or name the project's directory with -C DIR"
    if isinstance(error, PermissionError):
        return "let the user who runs reprobuild read it"
    return "see what stands at that path"


def _decode(raw: bytes, name: str, code: str) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        begin = raw.rfind(b"\n", 0, error.start) + 1
        column = len(raw[begin : error.start].decode("utf-8", "replace")) + 1
        raise ReprobuildError(
            code,
            f"{name}:{line}:{column}: byte 0x{raw[error.start]:02x} is not UTF-8",
            file=name,
            line=line,
            column=column,
            hint="save the file as UTF-8",
        ) from error
    if text.startswith("\ufeff"):
        raise ReprobuildError(
            code,
            f"{name}:1:1: the file begins with a byte-order mark",
            file=name,
            line=1,
            column=1,
            hint="save the file as UTF-8 without a byte-order mark",
        )
    # As tomllib does, so that its offsets and ours agree.
    return text.replace("\r\n", "\n")


def _parse(text: str, name: str, code: str) -> dict[str, Any]:
    if any(line.count(".") >= MAX_KEY_PARTS and _DEEP.search(line) for line in text.split("\n")):
        deep = scan(text).too_deep
        if deep is not None:
            raise _error(code, name, deep, f"a key has more than {MAX_KEY_PARTS} parts")
    try:
        data = tomllib.loads(text)
        frozen = _tuples(data)
        assert isinstance(frozen, dict)
        return frozen
    except RecursionError:
        raise ReprobuildError(
            code,
            f"{name} is nested too deeply",
            file=name,
            hint="no table or array of these files is more than a few levels deep",
        ) from None
    except ValueError as error:  # TOMLDecodeError, and int()'s refusal of very long numbers
        raise _syntax(text, name, code, error) from error


def _syntax(text: str, name: str, code: str, error: ValueError) -> ReprobuildError:
    found = scan(text)
    if found.twice is not None:
        key = dotted(found.twice.path)
        first = found.twice.first
        return _error(
            code,
            name,
            found.twice.second,
            f"{key}: given twice; first in line {first[0]}",
            key=key,
            hint="keep one of the two",
        )
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        return _error(
            code,
            name,
            (text.count("\n", 0, conflict.start()) + 1, 1),
            "a merge conflict was left in the file",
            hint="resolve it; of a lock keep either side, then run `reprobuild lock`",
        )
    message = str(error)
    where = _WHERE.search(message)
    if where is None:
        return ReprobuildError(code, f"{name} is not TOML: {shown(message, 200)[1:-1]}", file=name)
    reason = message[: where.start()]
    reason = _REASONS.get(reason, reason[:1].lower() + reason[1:])
    if where[1]:
        place = int(where[1]), int(where[2])
    else:
        place = text.count("\n") + 1, len(text) - text.rfind("\n")
        reason = f"the file ends too early: {reason}"
    return _error(code, name, place, f"not TOML: {shown(reason, 200)[1:-1]}")


def _error(
    code: str,
    name: str,
    place: tuple[int, int],
    reason: str,
    *,
    key: str | None = None,
    hint: str | None = None,
) -> ReprobuildError:
    line, column = place
    return ReprobuildError(
        code,
        f"{name}:{line}:{column}: {reason}",
        file=name,
        line=line,
        column=column,
        key=key,
        hint=hint,
    )


def _tuples(value: object) -> object:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value


def _too_large(value: object) -> tuple[KeyPath, int] | None:
    """The first integer that is out of the range of canonical documents, and where it is."""
    if isinstance(value, int):
        return None if -MAX_INTEGER <= value <= MAX_INTEGER else ((), value)
    rows: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        rows = value.items()
    elif isinstance(value, tuple):
        rows = enumerate(value)
    for key, item in rows:
        found = _too_large(item)
        if found is not None:
            return (key, *found[0]), found[1]
    return None


def _out_of_range(code: str, name: str, text: str, path: KeyPath, value: int) -> ReprobuildError:
    expected, got = f"a number from -{MAX_INTEGER} to {MAX_INTEGER}", shown(value)
    place, key = scan(text).locate(path, "value"), dotted(path)
    error = _error(code, name, place, f"{key}: expected {expected}, got {got}", key=key)
    error.facts |= {"expected": expected, "got": got}
    return error


def dotted(path: tuple[str | int, ...]) -> str:
    """A key path for people: `outputs.quickstart.components[2]`; odd keys are quoted and cut."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
            continue
        text = part if re.fullmatch(r"[A-Za-z0-9_+-]{1,80}", part) else shown(part, 40)
        out += f".{text}" if out else text
    return out
