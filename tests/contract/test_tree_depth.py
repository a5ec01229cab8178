"""Trees nested without end are refused in words, wherever they come from."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.builders.assembly import Assembly
from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.store import durable
from reprobuild.adapters.store.dirstack import remove_tree
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.tree import MAX_DEPTH, Directory, File, Tree
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError

FAR = 1500


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStore]:
    for name in ("fsync", "syncfs"):  # once for each level
        monkeypatch.setattr(durable, name, lambda _: None)
    with LocalStore.open(tmp_path / "store", create=True) as opened:
        yield opened


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ReprobuildError) as error:
        call()
    assert error.value.code == "E-TREE" and "directories deep" in error.value.message
    assert len(error.value.message) < 400


def chain(file: File, levels: int, name: bytes = b"file") -> dict[Digest, Tree]:
    """A file below `levels` directories; the last of the nodes is the root."""
    tree = Tree.of({name: file})
    nodes = {tree.digest: tree}
    for _ in range(levels):
        tree = Tree.of({b"d": Directory(tree.digest)})
        nodes[tree.digest] = tree
    return nodes


def put(store: LocalStore, levels: int, name: bytes = b"file") -> Digest:
    nodes = chain(store.add_blob(io.BytesIO(b"content")), levels, name)
    store.add_trees(nodes)
    return list(nodes)[-1]


def nested(path: Path, levels: int) -> None:
    path.mkdir()
    fd = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def test_a_directory_of_the_disk(store: LocalStore, tmp_path: Path) -> None:
    nested(tmp_path / "far", FAR)
    refused(lambda: store.capture(tmp_path / "far"))
    remove_tree(str(tmp_path / "far"))
    nested(tmp_path / "most", MAX_DEPTH)
    made = store.materialise(store.capture(tmp_path / "most"))
    nested(tmp_path / "more", MAX_DEPTH + 1)
    refused(lambda: store.capture(tmp_path / "more"))
    for path in (made, tmp_path / "most", tmp_path / "more"):
        remove_tree(str(path))


def test_nodes_from_elsewhere(store: LocalStore) -> None:
    file = store.add_blob(io.BytesIO(b"content"))
    refused(lambda: store.add_trees(chain(file, FAR)))
    for digest, tree in list(chain(file, MAX_DEPTH).items()):  # one at a time is no way around it
        store.add_trees({digest: tree})
    more = Tree.of({b"d": Directory(digest)})
    refused(lambda: store.add_trees({more.digest: more}))


def test_paths() -> None:
    file = File(Digest.of(b"x"), 1)
    builder = TreeBuilder()
    refused(lambda: builder.add(b"d/" * FAR + b"file", file))
    refused(lambda: builder.add_directory(b"d/" * (MAX_DEPTH + 1)))
    builder.add(b"d/" * MAX_DEPTH + b"file", file)
    root, nodes = builder.build()
    assert nodes == chain(file, MAX_DEPTH) and root == list(nodes)[-1]


def test_trees_put_together(store: LocalStore) -> None:
    one, two = put(store, MAX_DEPTH), put(store, MAX_DEPTH, b"other")
    assembly = Assembly(store)
    assembly.graft(b"", one, "one")
    assembly.graft(b"", two, "two")
    joined = assembly.build()
    both = Assembly(store)
    both.graft(b"", joined, "joined", select=Selection.of(["**"], ["none"]))
    assert both.build() == joined
    below = Assembly(store)
    below.graft(b"under", one, "one")
    refused(lambda: below.graft(b"under", two, "two"))
    refused(lambda: Assembly(store).directory(b"d/" * FAR, "far"))
    opaque = Assembly(store)
    opaque.graft(b"under", one, "one")
    refused(opaque.build)


def test_a_store_that_holds_one_all_the_same(tmp_path: Path, store: LocalStore) -> None:
    half = put(store, MAX_DEPTH)
    store.barrier()
    with LocalStore.open(tmp_path / "store") as other:  # which knows no heights
        top = Tree.of({b"d": Directory(half)})
        other.add_trees({top.digest: top})
        other.barrier()
        refused(lambda: other.materialise(top.digest))
