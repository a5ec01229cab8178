from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from support.trees import Given, listing, make


class Counting(MemoryStore):
    """Counts which directory nodes are read."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.reads: list[Digest] = []

    def tree(self, digest: Digest):  # type: ignore[no-untyped-def]
        self.reads.append(digest)
        return super().tree(digest)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "store")


def join(
    store: MemoryStore, trees: dict[str, dict[str, Given]], **params: Value
) -> dict[str, Given]:
    inputs = {name: make(store, files) for name, files in trees.items()}
    return listing(store, builtins()["join"].build(params, inputs, store)["out"])


def test_directories_merge(store: Counting) -> None:
    got = join(
        store,
        {"a": {"d/x": b"1", "e": None, "only/a": b""}, "b": {"d/y": b"2", "d/x": b"1", "l": "d"}},
        place=[{"input": "a"}, {"input": "b"}],
    )
    assert got == {"d/x": b"1", "d/y": b"2", "e": None, "only/a": b"", "l": "d"}


def test_whole_trees_are_grafted_without_being_read(store: Counting) -> None:
    deep = make(store, {f"d{n}/e/f{n}": b"x" for n in range(50)})
    other = make(store, {"g/h": b""})
    store.reads.clear()
    place = [{"input": "deep", "to": "opt/deep"}, {"input": "other", "to": "opt/other"}]
    builtins()["join"].build({"place": place}, {"deep": deep, "other": other}, store)
    assert store.reads == []


def test_the_same_subtree_twice_is_not_opened(store: Counting) -> None:
    a = make(store, {"same/x/y": b"1", "a": b""})
    b = make(store, {"same/x/y": b"1", "b": b""})
    store.reads.clear()
    place = [{"input": "a"}, {"input": "b"}]
    builtins()["join"].build({"place": place}, {"a": a, "b": b}, store)
    assert set(store.reads) == {a, b}


def test_from_to_and_patterns(store: Counting) -> None:
    trees: dict[str, dict[str, Given]] = {
        "w": {"nvidia/cu13/include/a.h": b"h", "nvidia/cu13/lib/b.so": (b"so", True), "m": b""}
    }
    assert join(
        store,
        trees,
        place=[{"input": "w", "from": "nvidia/cu13", "to": "usr/local/cuda", "exclude": ["lib"]}],
    ) == {"usr/local/cuda/include/a.h": b"h"}
    assert join(
        store, trees, place=[{"input": "w", "from": "nvidia/cu13/lib/b.so", "to": "lib/"}]
    ) == {"lib/b.so": (b"so", True)}
    assert join(
        store, trees, place=[{"input": "w", "from": "nvidia/cu13/lib/b.so", "to": "lib/c.so"}]
    ) == {"lib/c.so": (b"so", True)}
    assert join(store, trees, place=[{"input": "w", "include": ["**/*.h"]}]) == {
        "nvidia/cu13/include/a.h": b"h"
    }


CONFLICTS: list[tuple[dict[str, Given], dict[str, Given]]] = [
    ({"x": b"1"}, {"x": b"2"}),
    ({"x": b"1"}, {"x": (b"1", True)}),
    ({"x": b"1"}, {"x": "1"}),
    ({"x/y": b"1"}, {"x": b"2"}),
    ({"x": b"1"}, {"x/y": b"2"}),
    ({"x": "y"}, {"x/y": b"2"}),
]


@pytest.mark.parametrize(("first", "second"), CONFLICTS)
def test_conflicts_name_both(
    store: Counting, first: dict[str, Given], second: dict[str, Given]
) -> None:
    with pytest.raises(ReprobuildError) as error:
        join(store, {"a": first, "b": second}, place=[{"input": "a"}, {"input": "b"}])
    assert error.value.code == "E-TREE-CONFLICT"
    assert (error.value.facts["first"], error.value.facts["second"]) == ("a", "b")


def test_replace_takes_files_but_no_directories(store: Counting) -> None:
    place: Value = [{"input": "a"}, {"input": "b", "replace": True}]
    for first, second in CONFLICTS[:3]:
        assert join(store, {"a": first, "b": second}, place=place) == second
    for first, second in CONFLICTS[3:5]:
        with pytest.raises(ReprobuildError):
            join(store, {"a": first, "b": second}, place=place)


def test_links_and_files(store: Counting) -> None:
    assert join(
        store,
        {},
        links={"lib64": "lib"},
        files={"bin/run": "#!/bin/sh\n", "etc/ä": "ü"},
        executables=["bin/run"],
    ) == {"lib64": "lib", "bin/run": (b"#!/bin/sh\n", True), "etc/ä": "ü".encode()}


def test_nothing_joined_is_the_empty_tree(store: Counting) -> None:
    assert join(store, {}) == {}


@pytest.mark.parametrize(
    "params",
    [
        {"place": [{"input": "missing"}]},
        {"place": [{"input": "a", "from": "missing"}]},
        {"place": [{"input": "a", "from": "x", "include": ["y"]}]},
        {"place": [{"input": "a", "form": "x"}]},
        {"place": [{}]},
        {"executables": ["no-such-file"]},
    ],
    ids=str,
)
def test_parameters_that_are_off(store: Counting, params: Value) -> None:
    with pytest.raises(ReprobuildError) as error:
        builtins()["join"].build(params, {"a": make(store, {"x": b""})}, store)
    assert error.value.code == "E-PARAMS"


@pytest.mark.parametrize(
    "params",
    [
        {"place": [{"input": "a", "to": "../x"}]},
        {"place": [{"input": "a", "to": "/x"}]},
        {"place": [{"input": "a", "from": "../x"}]},
        {"files": {"../x": ""}},
        {"links": {"/x": "y"}},
        {"links": {"x": ""}},
    ],
    ids=str,
)
def test_places_outside_the_tree(store: Counting, params: Value) -> None:
    with pytest.raises(ReprobuildError) as error:
        builtins()["join"].build(params, {"a": make(store, {"x": b""})}, store)
    assert error.value.code == "E-TREE"


NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS: st.SearchStrategy[Given] = st.one_of(
    st.sampled_from([b"1", b"2"]),
    st.sampled_from(["a", "b"]),
    st.tuples(st.just(b"1"), st.just(True)),
)


def possible(files: dict[str, Given]) -> bool:
    """Whether no path lies below a file or link."""
    return not any(path.startswith(f"{other}/") for path in files for other in files)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.dictionaries(PATHS, CONTENTS, max_size=4).filter(possible), max_size=4),
    st.booleans(),
)
def test_joining_is_the_union_of_paths_or_a_conflict(
    tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, Given]], replace: bool
) -> None:
    store = MemoryStore(tmp_path_factory.mktemp("store"))
    union: dict[str, Given] = {}
    conflict = False
    for files in trees:
        conflict = conflict or not possible({**union, **files})
        if not replace:
            conflict = conflict or any(union.get(p, v) != v for p, v in files.items())
        union.update(files)
    place: Value = [{"input": str(n), "replace": replace} for n in range(len(trees))]
    named = {str(n): files for n, files in enumerate(trees)}
    if conflict:
        with pytest.raises(ReprobuildError) as error:
            join(store, named, place=place)
        assert error.value.code == "E-TREE-CONFLICT"
    else:
        assert join(store, named, place=place) == union
