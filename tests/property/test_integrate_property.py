"""Integration against a checkout's composition, and laws that hold for any stack."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprobuild.core.integration.algebra import cannot_meet
from reprobuild.core.integration.backend import Change
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy
from reprobuild.core.integration.strategies import integrate, patch_digest
from reprobuild.errors import ReprobuildError
from support.gitkit import (
    Composition,
    Origin,
    bulk_commit,
    checkout_composition,
    merge_spec,
    opened,
)

SLOWLY = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

NAMES = [b"a.py", b"b.txt", b"dir/c.py", b"dir/d.bin", b"dir/sub/e", b"caf\xc3\xa9", b"sp ace"]
LINE = st.sampled_from([b"one\n", b"two\n", b"three\n", b"  indented\n", b"\xff\xfe raw\n"])
TEXT = st.lists(LINE, min_size=0, max_size=12).map(b"".join)
BINARY = st.binary(min_size=1, max_size=60).map(lambda b: b"\0" + b)
FILE = st.tuples(st.sampled_from(["100644", "100755"]), st.one_of(TEXT, TEXT, BINARY))
BASE = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, FILE)).filter(bool)
EDIT = st.one_of(FILE, st.none())


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def build(tmp: Path, base: dict[bytes, tuple[str, bytes]], edits: list[dict[bytes, object]],
          parents: list[int]) -> tuple[Origin, IntegrationSpec]:  # fmt: skip
    origin = Origin.make(tmp / "origin.git")
    stream = [bulk_commit("refs/heads/main", 1, base)]
    present: list[set[bytes]] = [set(base)]
    for number, edit in enumerate(edits, 1):
        parent = min(parents[number - 1], number - 1)
        here = present[parent]
        usable = {n: v for n, v in edit.items() if v is not None or n in here}
        present.append((here | set(usable)) - {n for n, v in usable.items() if v is None})
        stream.append(
            bulk_commit(f"refs/pull/{number}/head", number + 1, usable, parent + 1)  # type: ignore[arg-type]
        )
    refs = origin.bulk(b"".join(stream))
    return origin, merge_spec(origin, refs["refs/heads/main"], *range(1, len(edits) + 1))


STACK = st.integers(1, 4).flatmap(
    lambda count: st.tuples(
        st.lists(
            st.dictionaries(st.sampled_from(NAMES), EDIT, min_size=1, max_size=3),
            min_size=count,
            max_size=count,
        ),
        st.lists(st.integers(0, 3), min_size=count, max_size=count),
    )
)


@SLOWLY
@given(base=BASE, stack=STACK, picks=st.booleans())
def test_any_stack_gives_what_a_checkout_gives(
    base: dict[bytes, tuple[str, bytes]],
    stack: tuple[list[dict[bytes, object]], list[int]],
    picks: bool,
) -> None:
    with scratch() as tmp:
        origin, spec = build(tmp, base, *stack)
        if picks:
            heads = tuple(HeadSpec(h.number, h.head, commits=(h.head,)) for h in spec.heads)
            spec = IntegrationSpec(Strategy.CHERRY_PICK, spec.base, heads)
        expected = checkout_composition(origin.path, spec, tmp / "work")
        with opened(origin.path) as repository:
            try:
                done = integrate(repository, spec)
            except ReprobuildError as error:
                assert error.code == "E-CONFLICT", error
                assert expected == error.facts["pull_request"]
                return
        assert isinstance(expected, Composition), expected
        assert done.tree.hex == expected.tree
        assert done.patch_sha256.hex == expected.patch_sha256


@SLOWLY
@given(base=BASE, stack=STACK)
def test_the_patch_on_the_base_gives_the_tree_and_a_rerun_the_same(
    base: dict[bytes, tuple[str, bytes]], stack: tuple[list[dict[bytes, object]], list[int]]
) -> None:
    with scratch() as tmp:
        origin, spec = build(tmp, base, *stack)
        with opened(origin.path) as repository:
            try:
                done = integrate(repository, spec)
            except ReprobuildError:
                return
            assert done.base_tree is not None
            patch = io.BytesIO()
            repository.patch(done.base_tree, done.tree, patch)
            again = done.base_tree
            if patch.getvalue():
                again = repository.apply_patch(done.base_tree, patch.getvalue())
            assert again == done.tree
            empty = patch_digest(repository, done.tree, done.tree)
            assert (done.patch_digest == empty) == (done.tree == done.base_tree)
        with opened(origin.path) as repository:
            assert integrate(repository, spec) == done


@SLOWLY
@given(base=BASE, data=st.data())
def test_heads_that_touch_disjoint_files_commute(
    base: dict[bytes, tuple[str, bytes]], data: st.DataObject
) -> None:
    names = data.draw(st.permutations(NAMES))
    cuts = sorted(data.draw(st.lists(st.integers(1, len(names) - 1), min_size=1, max_size=3)))
    groups = [names[a:b] for a, b in zip([0, *cuts], [*cuts, len(names)], strict=True)]
    edits: list[dict[bytes, object]] = [
        {n: data.draw(FILE) for n in group} for group in groups if group
    ]
    with scratch() as tmp:
        origin, spec = build(tmp, base, edits, [0] * len(edits))
        numbers = [h.number for h in spec.heads]
        shuffled = data.draw(st.permutations(numbers))
        with opened(origin.path) as repository:
            forth = integrate(repository, spec)
            other = integrate(repository, merge_spec(origin, spec.base, *shuffled))
        assert forth.tree == other.tree
        assert forth.patch_digest == other.patch_digest
        assert forth.patch_sha256 == other.patch_sha256


PATH = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3).map(b"/".join)
CHANGE = st.builds(
    lambda path, kind: Change(
        path,
        0 if kind == "added" else 0o100644,
        0 if kind == "left" else 0o100644,
        None if kind == "added" else object(),  # type: ignore[arg-type]
        None if kind == "left" else object(),  # type: ignore[arg-type]
    ),
    PATH,
    st.sampled_from(["added", "left", "changed"]),
)


@given(one=st.lists(CHANGE, max_size=5), other=st.lists(CHANGE, max_size=5))
def test_cannot_meet_is_symmetric_and_never_holds_for_a_common_path(
    one: list[Change], other: list[Change]
) -> None:
    apart = cannot_meet(one, other)
    assert apart == cannot_meet(other, one)
    if {c.path for c in one} & {c.path for c in other}:
        assert not apart
    for a in one:
        for b in other:
            if a.path.startswith(b.path + b"/"):
                assert not apart
