"""What holds of every comparison."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from reprobuild.core.diff.fields import changes
from reprobuild.core.diff.hunks import blame, hunks, split
from reprobuild.core.diff.side import Head
from reprobuild.core.diff.sources import compare_heads
from reprobuild.core.diff.trees import compare_trees, differing
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.tree import MAX_DEPTH, Directory, Entry, File, Symlink, Tree, decode
from reprobuild.errors import ReprobuildError

NAMES = st.sampled_from([b"a", b"b", b"c", b"d", b"a.b"])
LEAVES = st.one_of(
    st.builds(File, st.sampled_from([Digest.of(bytes([n])) for n in range(3)]), st.just(1),
              st.booleans()),
    st.builds(Symlink, st.sampled_from([b"x", b"y"])),
)  # fmt: skip
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=3),
    lambda below: st.dictionaries(NAMES, st.one_of(LEAVES, below), max_size=4),
    max_leaves=20,
)


def store(nested: object, trees: dict[Digest, Tree]) -> Digest:
    assert isinstance(nested, dict)
    entries: dict[bytes, Entry] = {
        name: Directory(store(value, trees)) if isinstance(value, dict) else value
        for name, value in nested.items()
    }
    tree = Tree.of(entries)
    trees[tree.digest] = tree
    return tree.digest


def flat(nested: object, prefix: bytes = b"") -> dict[bytes, object]:
    assert isinstance(nested, dict)
    found: dict[bytes, object] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            found |= flat(value, prefix + name + b"/")
        else:
            found[prefix + name] = value
    return found


@given(TREES, TREES)
def test_trees_agree_with_a_walk_of_everything(one: object, other: object) -> None:
    trees: dict[Digest, Tree] = {}
    a, b = store(one, trees), store(other, trees)
    found = {c.path: (c.old, c.new) for c in compare_trees(lambda d: trees[d].encode(), a, b)}
    left, right = flat(one), flat(other)
    expected = {
        path: (left.get(path), right.get(path))
        for path in {*left, *right}
        if left.get(path) != right.get(path)
    }
    assert found == expected


@given(TREES)
def test_equal_trees_are_not_opened(nested: object) -> None:
    digest = store(nested, {})

    def refuse(digest: Digest) -> bytes:
        raise AssertionError(digest)

    assert list(compare_trees(refuse, digest, digest)) == []


@given(st.binary(max_size=200), TREES)
def test_bytes_that_are_no_node_are_refused_or_read_as_a_decoder_would(
    noise: bytes, nested: object
) -> None:
    trees: dict[Digest, Tree] = {}
    node = trees[store(nested, trees)].encode()
    for data in (noise, node[: len(node) // 2], node + noise):
        try:
            wanted = dict(decode(data).entries)
        except ReprobuildError as error:
            assert error.code in ("E-TREE", "E-DIGEST")
            with suppress(ReprobuildError):
                differing(data, b"")
            continue
        assert {name: one for name, one, _ in differing(data, b"")} == wanted
        assert differing(data, data) == []


HEADS = st.lists(st.integers(1, 30), unique=True, max_size=12).flatmap(
    lambda numbers: st.tuples(
        *(st.builds(Head, st.just(n), st.sampled_from("abc")) for n in numbers)
    )
)


@given(HEADS, HEADS)
def test_heads_can_be_replayed(old: tuple[Head, ...], new: tuple[Head, ...]) -> None:
    """From the old list and what is said of the changes, the new set of heads follows."""
    found = compare_heads(old, new)
    state = {h.number: h.head for h in old}
    for head in found.dropped:
        del state[head.number]
    for head in found.added:
        assert head.number not in state
        state[head.number] = head.head
    for before, after in found.moved:
        assert state[before.number] == before.head
        state[after.number] = after.head
    assert state == {h.number: h.head for h in new}
    left = [h.number for h in old if h.number in state and h.number not in found.reordered]
    assert [h.number for h in new if h.number in left] == [n for n in left if n in state]


@given(HEADS, HEADS)
def test_turning_around_turns_around(old: tuple[Head, ...], new: tuple[Head, ...]) -> None:
    there, back = compare_heads(old, new), compare_heads(new, old)
    assert {h.number for h in there.added} == {h.number for h in back.dropped}
    assert {o.number for o, _ in there.moved} == {o.number for o, _ in back.moved}
    assert len(there.reordered) == len(back.reordered)


TEXTS = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"x"]), max_size=25).map(b"".join)


@given(TEXTS, TEXTS)
def test_hunks_hold_the_whole_difference(old: bytes, new: bytes) -> None:
    found = hunks(old, new)
    assert found is not None
    left, right = split(old), split(new)
    at, rebuilt = 0, []
    for hunk in found:
        start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        rebuilt += [line.decode().rstrip("\n") for line in left[at:start]]
        rebuilt += [line[1:] for line in hunk.lines if line[0] != "-"]
        at = start + hunk.old_lines
    rebuilt += [line.decode().rstrip("\n") for line in left[at:]]
    assert rebuilt == [line.decode().rstrip("\n") for line in right]
    assert (found == []) == (left == right)


@given(st.lists(st.tuples(st.integers(1, 9), TEXTS), max_size=5), TEXTS)
def test_every_line_has_an_owner(rows: list[tuple[int, bytes]], base: bytes) -> None:
    found = blame([(0, base), *rows])
    final = rows[-1][1] if rows else base
    assert len(found.lines) == len(split(final))
    assert set(found.lines) <= {0, *(number for number, _ in rows)}


VALUES: st.SearchStrategy[Value] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2)),
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.sampled_from("xyz"), below, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_fields_differ_exactly_where_values_do(one: Value, other: Value) -> None:
    from reprobuild.core.encoding import encode

    assert (list(changes(one, other)) == []) == (encode(one) == encode(other))


def test_a_tree_as_deep_as_trees_can_be() -> None:
    trees: dict[Digest, Tree] = {}

    def nested(leaf: bytes) -> Digest:
        here: Entry = File(Digest.of(leaf), 1)
        for _ in range(MAX_DEPTH):
            tree = Tree.of({b"d": here})
            trees[tree.digest] = tree
            here = Directory(tree.digest)
        assert isinstance(here, Directory)
        return here.digest

    (change,) = compare_trees(lambda d: trees[d].encode(), nested(b"one"), nested(b"two"))
    assert change.path == b"/".join([b"d"] * MAX_DEPTH)
    assert change.status == "changed"
