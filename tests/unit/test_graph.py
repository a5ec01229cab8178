"""The graph: closed, ordered, and the same whatever order it was made in."""

from __future__ import annotations

import random

import pytest

from reprobuild.core.derivation import Derivation, FixedOutput, Input
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import decode
from reprobuild.core.graph import Graph, documents


def fetch(name: str) -> Derivation:
    return Derivation(name, "fetch", fixed=FixedOutput("tree", tree=Digest.of(name.encode())))


def join(name: str, *needs: Derivation) -> Derivation:
    inputs = tuple(Input(f"i{n}", need.digest) for n, need in enumerate(needs))
    return Derivation(name, "builtin:join", inputs)


A, B, C = fetch("a"), fetch("b"), fetch("c")
AB, BC = join("ab", A, B), join("bc", B, C)
TOP = join("top", AB, BC)
ALL = (A, B, C, AB, BC, TOP)


def graph() -> Graph:
    made = Graph()
    for derivation in ALL:
        assert made.add(derivation) == derivation.digest
    return made


def test_refuses_what_it_does_not_hold_whole() -> None:
    made = Graph()
    with pytest.raises(KeyError, match="ab refers to"):
        made.add(AB)
    assert len(made) == 0


def test_holds_each_once() -> None:
    made = graph()
    made.add(AB)
    assert len(made) == 6
    assert set(made) == {d.digest for d in ALL}


def test_closure() -> None:
    made = graph()
    assert made.closure([AB.digest]) == {AB.digest, A.digest, B.digest}
    assert made.closure([AB.digest, C.digest]) == {AB.digest, A.digest, B.digest, C.digest}
    assert made.closure([]) == set()


def test_order_is_topological_with_ties_by_digest() -> None:
    made = graph()
    order = made.order([TOP.digest])
    assert set(order) == {d.digest for d in ALL}
    place = {digest: index for index, digest in enumerate(order)}
    for derivation in ALL:
        for entry in derivation.inputs:
            assert place[entry.drv] < place[derivation.digest]
    # at each step the smallest of those that could come next
    left, done = set(order), set[Digest]()
    for digest in order:
        ready = [d for d in left if all(e.drv in done for e in made.nodes[d].inputs)]
        assert digest == min(ready)
        left.remove(digest)
        done.add(digest)


def test_order_does_not_depend_on_how_it_was_made() -> None:
    made = graph()
    for seed in range(5):
        other = Graph()
        left = list(ALL)
        shuffle = random.Random(seed)
        while left:
            ready = [d for d in left if all(e.drv in other.nodes for e in d.inputs)]
            chosen = shuffle.choice(ready)
            other.add(chosen)
            left.remove(chosen)
        assert other.order([TOP.digest]) == made.order([TOP.digest])


def test_path() -> None:
    made = graph()
    assert made.path(TOP.digest, C.digest) == [TOP.digest, BC.digest, C.digest]
    assert made.path(TOP.digest, TOP.digest) == [TOP.digest]
    assert made.path(AB.digest, C.digest) == []
    assert made.path(C.digest, TOP.digest) == []


def test_documents_are_what_the_digests_are_of() -> None:
    made = graph()
    for digest, document in documents(made, [TOP.digest, A.digest]).items():
        assert decode(document) == made.nodes[digest].document()
