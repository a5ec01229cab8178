"""Merges on tree objects against git's own, over trees that are moved, cut and grown."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprobuild.adapters.git.threeway import disjoint_merge
from support.gitkit import Origin, bulk_commit, opened

DIRECTORIES = [b"", b"a", b"b", b"a/in", b"b/in", b"new"]
LEAVES = [b"x", b"y", b"z", b"a", b"in"]
BODIES = [b"".join(b"line %d of %d\n" % (n, k) for n in range(12)) for k in range(6)]

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
    return tree


@st.composite
def changed(draw: st.DrawFn, tree: Tree) -> Tree:
    out = dict(tree)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["edit", "add", "drop", "move", "move-all", "mode"]))
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


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(data=st.data())
def test_a_merge_on_tree_objects_is_gits_own(data: st.DataObject) -> None:
    base = data.draw(base_trees())
    ours, theirs = data.draw(changed(base)), data.draw(changed(base))
    if not base or not ours or not theirs:
        return
    with tempfile.TemporaryDirectory() as name:
        origin = Origin.make(Path(name) / "origin.git")
        refs = origin.bulk(
            bulk_commit("refs/heads/base", 1, base)
            + bulk_commit("refs/heads/ours", 2, _edits(base, ours), 1)
            + bulk_commit("refs/heads/theirs", 3, _edits(base, theirs), 1)
        )
        trees = [origin.tree(refs[f"refs/heads/{n}"]) for n in ("base", "ours", "theirs")]
        with opened(origin.path) as repository:
            scratch = repository.scratch
            made = disjoint_merge(scratch.reader, scratch.write_object, *trees)
            if made is None:
                return
            expected = repository.merge(refs["refs/heads/ours"], refs["refs/heads/theirs"])
        assert expected.clean, (base, ours, theirs, expected.messages)
        assert made == expected.tree, (base, ours, theirs)
