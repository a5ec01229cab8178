"""Merges on tree objects against git's own, over trees that are moved, cut and grown."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprobuild.adapters.git import difftext
from reprobuild.adapters.git.backend import GitRepository
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import MergeOutcome
from support.gitkit import Origin, bulk_commit, opened

DIRECTORIES = [b"", b"a", b"b", b"a/in", b"b/in", b"new"]
LEAVES = [b"x", b"y", b"z", b"a", b"in"]
BODIES = [b"".join(b"line %d of %d\n" % (n, k) for n in range(12)) for k in range(6)]
ATTRIBUTES = [
    b"",
    b"x merge=union\n",
    b"* -merge\n",
    b"in/* merge=union\n",
    b"[attr]u merge=union\ny u\n",
]
PLACES = [b".gitattributes", b"a/.gitattributes", b"a/in/.gitattributes"]

Tree = dict[bytes, tuple[str, bytes]]
PATH = st.builds(
    lambda d, n: d + b"/" + n if d else n, st.sampled_from(DIRECTORIES), st.sampled_from(LEAVES)
)
CONTENT = st.tuples(st.sampled_from(["100644", "100755", "120000"]), st.sampled_from(BODIES))


def _fits(tree: Tree, path: bytes) -> bool:
    above = path.split(b"/")
    return not any(b"/".join(above[:n]) in tree for n in range(1, len(above))) and not any(
        other.startswith(path + b"/") for other in tree
    )


@st.composite
def base_trees(draw: st.DrawFn) -> Tree:
    tree: Tree = {}
    for path in draw(st.lists(PATH, min_size=3, max_size=10, unique=True)):
        if _fits(tree, path):
            tree[path] = ("100644", draw(st.sampled_from(BODIES)) + path + b"\n")
    for path in draw(st.lists(st.sampled_from(PLACES), max_size=2, unique=True)):
        if _fits(tree, path):
            tree[path] = ("100644", draw(st.sampled_from(ATTRIBUTES)))
    return tree


@st.composite
def changed(draw: st.DrawFn, tree: Tree) -> Tree:
    out = dict(tree)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["edit", "line", "add", "drop", "move", "move-all", "mode"]))
        here = sorted(out)
        if kind == "add" or not here:
            path = draw(PATH)
            if _fits(out, path) and path not in out:
                out[path] = draw(CONTENT)
            continue
        path = draw(st.sampled_from(here))
        mode, body = out[path]
        if kind == "edit":
            out[path] = (mode, body + draw(st.sampled_from([b"more\n", b"other\n"])))
        elif kind == "line":
            lines = body.splitlines(keepends=True)
            lines.insert(
                draw(st.integers(0, len(lines))), draw(st.sampled_from([b"one\n", b"two\n"]))
            )
            out[path] = (mode, b"".join(lines))
        elif kind == "mode":
            out[path] = ("100755" if mode == "100644" else "100644", body)
        elif kind == "drop":
            del out[path]
        elif kind == "move":
            target = draw(PATH)
            rest = {k: v for k, v in out.items() if k != path}
            if _fits(rest, target) and target not in rest:
                out = {**rest, target: (mode, body)}
        else:
            source, target = (
                draw(st.sampled_from([b"a", b"b"])),
                draw(st.sampled_from([b"c", b"new"])),
            )
            moved = {
                target + k[len(source) :] if k.startswith(source + b"/") else k: v
                for k, v in out.items()
            }
            if len(moved) == len(out) and all(_fits(moved, k) for k in moved):
                out = moved
    return out


def _edits(old: Tree, new: Tree) -> dict[bytes, tuple[str, bytes] | None]:
    # fast-import takes the removals first, so that a file may make room for a directory
    gone: dict[bytes, tuple[str, bytes] | None] = {k: None for k in old if k not in new}
    return {**gone, **{k: v for k, v in new.items() if old.get(k) != v}}


def _rows(trees: Mapping[str, Tree], base: Tree) -> bytes:
    """The stream that makes a branch of each tree, on the base."""
    return bulk_commit("refs/heads/base", 1, base) + b"".join(
        bulk_commit(f"refs/heads/{name}", mark, _edits(base, tree), 1)
        for mark, (name, tree) in enumerate(trees.items(), start=2)
    )


MANY = settings(
    max_examples=int(os.environ.get("REPROBUILD_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="REPROBUILD_EXAMPLES" not in os.environ,
)


@MANY
@given(data=st.data())
def test_a_merge_on_tree_objects_is_gits_own(data: st.DataObject) -> None:
    base = data.draw(base_trees())
    ours, theirs = data.draw(changed(base)), data.draw(changed(base))
    if not base or not ours or not theirs:
        return
    with tempfile.TemporaryDirectory() as name:
        origin = Origin.make(Path(name) / "origin.git")
        refs = origin.bulk(_rows({"ours": ours, "theirs": theirs}, base))
        trees = [origin.tree(refs[f"refs/heads/{n}"]) for n in ("base", "ours", "theirs")]
        with opened(origin.path) as repository:
            made = repository.put_together(*trees)
            if made is None:
                return
            expected = repository.merge(refs["refs/heads/ours"], refs["refs/heads/theirs"])
        assert expected.clean, (base, ours, theirs, expected.messages)
        assert made == expected.tree, (base, ours, theirs)


@MANY
@given(data=st.data())
def test_looking_ahead_moves_no_answer(data: st.DataObject) -> None:
    base = data.draw(base_trees())
    stack = {f"head{n}": data.draw(changed(base)) for n in range(data.draw(st.integers(2, 5)))}
    if not base or not all(stack.values()):
        return
    with tempfile.TemporaryDirectory() as name:
        origin = Origin.make(Path(name) / "origin.git")
        refs = origin.bulk(_rows(stack, base))
        start = origin.tree(refs["refs/heads/base"])
        coming = [(start, origin.tree(refs[f"refs/heads/{n}"])) for n in stack]

        def on_top(*, ahead: bool) -> list[tuple[bool, GitOid]]:
            with opened(origin.path) as repository:
                if ahead:
                    repository.foresee(start, coming)
                tip, outcomes = start, []
                for old, new in coming:
                    outcome = (
                        repository.merge_trees(old, tip, new)
                        if ahead
                        else _by_git(repository, old, tip, new)
                    )
                    outcomes.append((outcome.clean, outcome.tree))
                    tip = outcome.tree if outcome.clean else tip
                return outcomes

        assert on_top(ahead=True) == on_top(ahead=False), (base, stack)


def _by_git(repository: GitRepository, old: GitOid, tip: GitOid, new: GitOid) -> MergeOutcome:
    root = repository.make_commit(old, (), "ancestor")
    left, right = (
        repository.make_commit(t, (root,), n) for t, n in ((tip, "ours"), (new, "theirs"))
    )
    return repository.merge(left, right)


@MANY
@given(data=st.data())
def test_a_patch_of_pieces_is_the_whole_one(data: st.DataObject) -> None:
    base = data.draw(base_trees())
    after = data.draw(changed(data.draw(changed(base))))
    if not base or not after:
        return
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        origin = Origin.make(Path(name) / "origin.git")
        refs = origin.bulk(_rows({"after": after}, base))
        old, new = (origin.tree(refs[f"refs/heads/{n}"]) for n in ("base", "after"))
        patch.setattr(difftext, "cores", lambda: 3)
        texts = []
        for worth in (0, 1 << 30):
            patch.setattr(difftext, "_WORTH", worth)
            with opened(origin.path) as repository, BytesIO() as sink:
                repository.patch(old, new, sink)
                texts.append(sink.getvalue())
        assert texts[0] == texts[1], (base, after)
