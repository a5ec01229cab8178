"""Where keys and values stand: line and column, both from 1."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tomlkit import dumps

from reprobuild.adapters.toml.positions import MAX_KEY_PARTS, Positions, scan

TEXT = '''\
# a comment with = and [brackets]
title = "x = 1"   # trailing
"quoted key" = 'lit#eral'
a.b."c.d" = 1
many = """
[not.a.table]
x = 2
""" # after
lit = \'\'\'
y = 3 '' \'\'\'
empty = ""

[table]
array = [
  1, # one
  [ 2, 3 ],
  { k = "v", "w" . z = [ { deep = true } ] },
]
date = 1979-05-27 07:32:00
[table.sub]
n = -1.5e3
[[rows]]
v = 1
[rows.under]
x = 1
[[rows]]
v = 2
[[rows.inner]]
q = 1
[[rows.inner]]
q = 2
[ "od d" . 'e' ]
f = inf
'''


def at(path: tuple[str | int, ...], what: str = "value") -> str:
    """The text that begins where `path` is said to stand."""
    line, column = scan(TEXT).locate(path, "key" if what == "key" else "value")
    return TEXT.split("\n")[line - 1][column - 1 :]


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        (("title",), '"x = 1"'),
        (("quoted key",), "'lit#eral'"),
        (("a", "b", "c.d"), "1"),
        (("many",), '"""'),
        (("lit",), "'''"),
        (("empty",), '""'),
        (("table",), "[table]"),
        (("table", "array"), "["),
        (("table", "array", 0), "1, # one"),
        (("table", "array", 1, 1), "3 ]"),
        (("table", "array", 2, "k"), '"v"'),
        (("table", "array", 2, "w", "z", 0, "deep"), "true"),
        (("table", "date"), "1979-05-27 07:32:00"),
        (("table", "sub", "n"), "-1.5e3"),
        (("rows", 0, "v"), "1"),
        (("rows", 0, "under", "x"), "1"),
        (("rows", 1, "v"), "2"),
        (("rows", 1), "[[rows]]"),
        (("rows", 1, "inner", 0, "q"), "1"),
        (("rows", 1, "inner", 1, "q"), "2"),
        (("od d", "e", "f"), "inf"),
    ],
)
def test_values(path: tuple[str | int, ...], begins: str) -> None:
    assert at(path).startswith(begins)


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        (("quoted key",), '"quoted key" ='),
        (("a",), "a.b."),
        (("a", "b", "c.d"), '"c.d" = 1'),
        (("table", "sub"), "sub]"),
        (("table", "array", 2, "w", "z"), "z ="),
        (("rows", 1, "inner"), "inner]]"),
        (("od d", "e"), "'e' ]"),
    ],
)
def test_keys(path: tuple[str | int, ...], begins: str) -> None:
    assert at(path, "key").startswith(begins)


def test_what_is_not_there_is_looked_for_around() -> None:
    found = scan(TEXT)
    assert found.locate(("rows", 1, "nothing", "here")) == found.locate(("rows", 1))
    assert found.locate(("nowhere",)) == (1, 1)


def paths(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [here] if here else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += paths(item, (*here, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += paths(item, (*here, index))
    return found


def test_the_text_above_has_every_path() -> None:
    found = scan(TEXT)
    assert [path for path in paths(tomllib.loads(TEXT)) if not found.has(path)] == []


keys = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
scalars = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.integers(-(2**60), 2**60),
    st.booleans(),
    st.dates(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(document=st.dictionaries(keys, values, max_size=4))
def test_every_path_of_any_document_has_a_place(document: dict[str, Any]) -> None:
    text = dumps(document)
    found = scan(text)
    data = tomllib.loads(text)
    assert [path for path in paths(data) if not found.has(path)] == []
    lines = text.split("\n")
    for path in paths(data):
        line, column = found.locate(path)
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="ab.=[]{}\"'\\#,\n 1", max_size=60))
def test_any_text_is_scanned_without_an_error(text: str) -> None:
    assert isinstance(scan(text), Positions)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("a = 1\na = 2\n", (1, 1), (2, 1)),
        ("a.b = 1\na.b.c = 2\n", (1, 3), (2, 3)),
        ("[a]\n[b]\n[a]\n", (1, 2), (3, 2)),
        ("[a]\nb = 1\n[a.b]\n", (2, 1), (3, 4)),
        ("[[a]]\n[a]\n", (1, 3), (2, 2)),
        ("a = { b = 1, b = 2 }\n", (1, 7), (1, 14)),
        ("a = 1\na = 2\nand then ! rubbish", (1, 1), (2, 1)),
    ],
)
def test_what_is_given_twice(text: str, first: tuple[int, int], second: tuple[int, int]) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    twice = scan(text).twice
    assert twice is not None
    assert (twice.first, twice.second) == (first, second)


def test_very_long_keys_are_noticed() -> None:
    deep = ".".join("k" * (MAX_KEY_PARTS + 1))
    assert scan(f"a = 1\n {deep} = 1\n").too_deep == (2, 2)
    assert scan(f"[{deep}]\n").too_deep == (1, 2)
    assert scan(".".join("k" * MAX_KEY_PARTS) + " = 1\n").too_deep is None
