"""The canonical encoding: the only bytes that documents are hashed over.

It is JSON (RFC 8259) narrowed until one value has exactly one text: UTF-8, no white space, object
keys sorted by code point, integers only (|n| < 2**53), no floats, no lone surrogates, and the
shortest escapes (`\\"`, `\\\\`, `\\b \\f \\n \\r \\t`, `\\u00xx` for the other control
characters, nothing else escaped). Tuples and lists are the same. docs/format.md states it for a
second implementation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from reprobuild.core.wording import json_problem
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # `typing` takes a run with nothing to do longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

Value = None | bool | int | str | Sequence["Value"] | Mapping[str, "Value"]

MAX_INTEGER = 2**53 - 1

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _check(value: object, path: str) -> None:
    if value is None or value is True or value is False:
        return
    kind = type(value)
    if kind is str:
        return  # lone surrogates are caught by the final .encode()
    if kind is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:  # type: ignore[operator]
            raise ReprobuildError("E-ENCODING", f"integer out of range at {path}", key=path)
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            if type(key) is not str:
                raise ReprobuildError("E-ENCODING", f"object key at {path} is no text", key=path)
            _check(item, f"{path}.{key}")
        return
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]")
        return
    raise ReprobuildError("E-ENCODING", f"{kind.__name__} cannot be encoded at {path}", key=path)


def _plain(value: object) -> bool:
    """Whether `_check` would pass a value of the commonest types; it says where if not.

    It walks with a list of its own: a document may be as deep as the parser allows.
    """
    left: list[Any] = [value]
    while left:
        item = left.pop()
        kind = type(item)
        if kind is str or item is None or kind is bool:
            continue
        if kind is dict:
            for key in item:
                if type(key) is not str:
                    return False
            left += item.values()
        elif kind is list or kind is tuple:
            left += item
        elif kind is not int or not -MAX_INTEGER <= item <= MAX_INTEGER:
            return False
    return True


def encode(value: Value) -> bytes:
    """The canonical bytes of `value`.

    Raises E-ENCODING for anything outside the value domain (floats, bytes, big integers, lone
    surrogates, keys that are not text).
    """
    if not _plain(value):
        _check(value, "$")
    text = _ENCODER.encode(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ReprobuildError("E-ENCODING", "text holds a lone surrogate") from error


def decode(data: bytes) -> Value:
    """The value whose canonical encoding is exactly `data`; anything else raises E-ENCODING."""
    try:
        value: Value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ReprobuildError(
            "E-ENCODING", f"not a canonical document: {json_problem(error)}"
        ) from error
    if encode(value) != data:
        raise ReprobuildError("E-ENCODING", "the document is JSON, but not in canonical form")
    return value
