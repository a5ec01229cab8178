from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.builders.params import Params, numbered
from reprobuild.errors import ReprobuildError


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("usr/share/doc/**", "usr/share/doc/a/b", True),
        ("usr/share/doc/**", "usr/share/doc", False),
        ("usr/share/doc", "usr/share/doc/a/b", True),
        ("usr/share/doc", "usr/share/docs", False),
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "d/e/a.py", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z/below", True),
        ("a/**/z", "ab/z", False),
        ("lib?.so", "lib1.so", True),
        ("lib?.so", "lib/.so", False),
        ("[!a-c]x", "dx", True),
        ("[!a-c]x", "bx", False),
        ("[!a]x", "/x", False),
        ("a.b", "aXb", False),
        ("a+b(c)", "a+b(c)", True),
        ("**", "anything/at/all", True),
    ],
)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert Selection.of([pattern], []).takes(path.encode()) is matches
    assert Selection.of([], [pattern]).takes(path.encode()) is not matches


def test_exclude_wins_over_include() -> None:
    selection = Selection.of(["a"], ["a/b"])
    assert selection.takes(b"a/c")
    assert not selection.takes(b"a/b/c")
    assert selection.drops(b"a/b")


def test_names_that_are_not_utf8_can_be_matched() -> None:
    assert Selection.of(["*.txt"], []).takes(b"\xff.txt")


@pytest.mark.parametrize("pattern", ["/abs", "../up", "a/../b", "", "./", "[a", "[z-a]"])
def test_patterns_that_are_off_are_refused(pattern: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        Selection.of([pattern], [])
    assert error.value.code == "E-PARAMS"


@given(st.lists(st.text(alphabet="ab.+[(\\{|^$", min_size=1), min_size=1, max_size=4))
def test_a_path_without_wildcards_matches_itself(parts: list[str]) -> None:
    path = "/".join(parts)
    if "[" in path or any(part in (".", "..") for part in parts):
        return
    assert Selection.of([path], []).takes(path.encode())
    assert not Selection.of([path], []).takes(b"x" + path.encode())


def test_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(ReprobuildError) as error:
        Params("unpack", {"stripp": 1}, ["strip", "prefix"])
    assert error.value.code == "E-PARAMS"
    assert error.value.hint == "did you mean `strip`?"


@pytest.mark.parametrize(
    "read",
    [
        lambda p: p.text("n"),
        lambda p: p.text("missing"),
        lambda p: p.text("t", choices=("a", "b")),
        lambda p: p.integer("t", most=9),
        lambda p: p.integer("n", most=3),
        lambda p: p.integer("b", most=3),
        lambda p: p.flag("n"),
        lambda p: p.texts("t"),
        lambda p: p.texts("mixed"),
        lambda p: p.table("t"),
        lambda p: p.table("bad"),
        lambda p: p.tables("t", ["x"]),
        lambda p: p.tables("mixed", ["x"]),
        lambda p: p.table_of_tables("bad", ["x"]),
    ],
)
def test_values_of_the_wrong_type_are_refused(read: object) -> None:
    known = ["n", "t", "b", "mixed", "bad", "missing"]
    params = Params("x", {"n": 5, "t": "c", "b": True, "mixed": ["a", 1], "bad": {"k": 1}}, known)
    assert callable(read)
    with pytest.raises(ReprobuildError) as error:
        read(params)
    assert error.value.code == "E-PARAMS"


def test_numbered_inputs_are_in_numeric_order() -> None:
    names = ["deb-10", "deb-2", "deb-0", "debx-1", "deb-x", "deb", "other-1"]
    assert numbered(names, "deb") == ["deb-0", "deb-2", "deb-10"]
