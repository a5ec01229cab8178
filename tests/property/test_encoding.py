"""The canonical encoding: one value, one text; one text, one value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.core.encoding import MAX_INTEGER, decode, encode
from reprobuild.errors import ReprobuildError

CHARACTERS = st.characters(codec="utf-8")  # all but surrogates
SCALARS = st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.text(CHARACTERS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(CHARACTERS), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equality that tells True from 1, which Python's own does not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(VALUES)
def test_what_is_encoded_is_decoded(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(VALUES, VALUES)
def test_is_injective(a: Any, b: Any) -> None:
    assert (encode(a) == encode(b)) == same(a, b)


@given(st.dictionaries(st.text("abcxyz\u00e9\uffff\U0001f600"), st.integers(0, 9)))
def test_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    assert encode(value) == encode(dict(reversed(value.items())))


@given(VALUES)
def test_is_json(value: Any) -> None:
    assert same(json.loads(encode(value)), value)


@given(VALUES, st.sampled_from(["  ", "\n", "\t"]), st.data())
def test_other_spellings_are_refused(value: Any, space: str, data: st.DataObject) -> None:
    text = encode(value).decode()
    spelling = data.draw(
        st.sampled_from(
            [
                text + space,
                space + text,
                json.dumps(value, indent=1, ensure_ascii=False),
                json.dumps(value, ensure_ascii=True),
                "\ufeff" + text,
            ]
        )
    )
    if spelling == text:
        assert same(decode(spelling.encode()), value)
        return
    with pytest.raises(ReprobuildError) as caught:
        decode(spelling.encode())
    assert caught.value.code == "E-ENCODING"


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        value = decode(data)
    except ReprobuildError as error:
        assert error.code == "E-ENCODING"
    else:
        assert encode(value) == data
