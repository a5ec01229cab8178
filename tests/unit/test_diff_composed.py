"""Which head each hunk of a composed branch comes from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reprobuild.core.diff.composed import composed_stack
from reprobuild.core.diff.hunks import BASE
from reprobuild.core.diff.side import ComponentSide, Head, Side
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Repository
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy
from reprobuild.engine.diff import no_patches
from reprobuild.engine.diff_loaded import Loaded
from reprobuild.engine.diff_sources import compare_source
from support.gitkit import Origin, git, opened

START = "".join(f"line {n}\n" for n in range(40))


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin.make(tmp_path / "origin.git")


def edited(*lines: int) -> str:
    return "".join(
        f"line {n}, moved\n" if n in lines else row
        for n, row in enumerate(START.splitlines(keepends=True))
    )


def composed(origin: Origin) -> IntegrationSpec:
    """Two heads merged one after the other, then a commit of its own, then a picked one."""
    base = origin.commit({"a": START, "b": "b\n"})
    one = origin.pull(1, {"a": edited(3), "b": "b\n"}, [base])
    two = origin.pull(2, {"a": edited(30), "b": "b\n"}, [base])
    three = origin.pull(3, {"a": START, "b": "b of three\n"}, [base], message="b of three")
    first = origin.commit({"a": edited(3), "b": "b\n"}, [base, one])
    second = origin.commit({"a": edited(3, 30), "b": "b\n"}, [first, two])
    mended = origin.commit({"a": edited(3, 17, 30), "b": "b\n"}, [second])
    picked = origin.commit(
        {"a": edited(3, 17, 30), "b": "b of three\n"}, [mended], message="b of three"
    )
    heads = (HeadSpec(1, one), HeadSpec(2, two), HeadSpec(3, three))
    return IntegrationSpec(Strategy.PINNED_BRANCH, base, heads, composition=picked)


def side(origin: Origin, spec: IntegrationSpec, *numbers: int) -> ComponentSide:
    assert spec.composition is not None
    heads = tuple(Head(h.number, h.head.hex) for h in spec.heads if h.number in numbers)
    return ComponentSide(
        "c", base=spec.base.hex, heads=heads, tree=origin.tree(spec.composition).hex, spec=spec
    )


def attributed(origin: Origin, old: ComponentSide, new: ComponentSide) -> dict[str, list[object]]:
    @contextmanager
    def opener(one: ComponentSide, other: ComponentSide) -> Iterator[Repository]:
        with opened(origin.path) as repository:
            yield repository

    loaded = Loaded(Side("old", "x")), Loaded(Side("new", "x"))
    found = compare_source(old, new, loaded, opener, (no_patches, no_patches))
    assert found.files.attributed, found.files.note
    return {f.path: [h.heads for h in f.hunks or ()] for f in found.files.files}


def test_the_chain_names_the_head_of_each_commit(origin: Origin) -> None:
    spec = composed(origin)
    with opened(origin.path) as repository:
        stack = composed_stack(repository, spec)
        assert stack is not None
        assert [number for number, _ in stack] == [BASE, 1, 2, BASE, 3]
        assert stack[-1][1] == origin.tree(spec.composition or spec.base)


def test_hunks_of_a_composed_branch_say_their_heads(origin: Origin) -> None:
    spec = composed(origin)
    bare = IntegrationSpec(Strategy.MERGE, spec.base)
    old = ComponentSide("c", base=spec.base.hex, tree=origin.tree(spec.base).hex, spec=bare)
    new = side(origin, spec, 1, 2, 3)
    # the repair by hand is nobody's
    assert attributed(origin, old, new) == {"a": [(1,), (), (2,)], "b": [(3,)]}


def test_two_compositions_one_head_apart(origin: Origin) -> None:
    spec = composed(origin)
    second = GitOid.parse(git(origin.path, "rev-parse", f"{spec.composition}~2"))
    less = replace(spec, composition=second, heads=spec.heads[:2])
    assert attributed(origin, side(origin, less, 1, 2), side(origin, spec, 1, 2, 3)) == {
        "a": [()],
        "b": [(3,)],
    }


def test_a_chain_that_is_no_heads_is_not_told(origin: Origin) -> None:
    base = origin.commit({"a": START})
    squashed = origin.commit({"a": edited(3)}, [base])
    head = HeadSpec(1, origin.pull(1, {"a": edited(3)}, [base]))
    spec = IntegrationSpec(Strategy.PINNED_BRANCH, base, (head,), composition=squashed)
    elsewhere = replace(spec, base=origin.commit({"s": "s\n"}))
    with opened(origin.path) as repository:
        assert composed_stack(repository, spec) is None
        assert composed_stack(repository, elsewhere) is None
