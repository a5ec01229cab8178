"""The canonical encoding, case by case, as docs/format.md states it."""

from __future__ import annotations

from typing import Any

import pytest

from reprobuild.core.encoding import MAX_INTEGER, decode, encode
from reprobuild.errors import ReprobuildError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, b"null"),
        (True, b"true"),
        (0, b"0"),
        (-MAX_INTEGER, b"-9007199254740991"),
        ("", b'""'),
        ('"\\/', b'"\\"\\\\/"'),
        ("\b\f\n\r\t\x00\x1f\x7f", b'"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f"'),
        ("é\U0001f600", '"é😀"'.encode()),
        ([], b"[]"),
        ((1, [2]), b"[1,[2]]"),
        ({}, b"{}"),
        ({"b": 1, "a": 2, "B": 3}, b'{"B":3,"a":2,"b":1}'),
        # by code point, not by UTF-16 unit
        ({"\U00010000": 1, "\uffff": 2}, '{"\uffff":2,"\U00010000":1}'.encode()),
    ],
)
def test_text(value: Any, text: bytes) -> None:
    assert encode(value) == text
    assert encode(decode(text)) == text


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        b"bytes",
        {1, 2},
        MAX_INTEGER + 1,
        -MAX_INTEGER - 1,
        "\ud800",
        {"\udfff": 1},
        {1: "a"},
        {"a": [0, {"b": 1.5}]},
        object(),
    ],
)
def test_outside_the_domain(value: Any) -> None:
    with pytest.raises(ReprobuildError) as caught:
        encode(value)
    assert caught.value.code == "E-ENCODING"


def test_says_where() -> None:
    with pytest.raises(ReprobuildError) as caught:
        encode({"a": [0, {"b": 1.5}]})  # type: ignore[dict-item]
    assert caught.value.facts["key"] == "$.a[1].b"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" 1",
        b"1 ",
        b"01",
        b"-0",
        b"1.0",
        b"1e2",
        b"9007199254740992",
        b"NaN",
        b"Infinity",
        b"'a'",
        b'"\\u0041"',
        b'"\\/"',
        b'"\\u00e9"',
        b'"\\ud800"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"[1, 2]",
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b"[1],",
        b"[" * 100_000,
        b"null\n",
    ],
)
def test_not_canonical(text: bytes) -> None:
    with pytest.raises(ReprobuildError) as caught:
        decode(text)
    assert caught.value.code == "E-ENCODING"
