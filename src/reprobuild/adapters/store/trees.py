"""Directory nodes: adding them after what they refer to, reading them back verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reprobuild.adapters.store.blobs import Blobs
from reprobuild.adapters.store.nodes import Nodes
from reprobuild.adapters.store.staging import Staging
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File, Tree, check_depth, decode
from reprobuild.errors import ReprobuildError


class Trees(Nodes):
    """The directory nodes of a store."""

    def __init__(self, staging: Staging, blobs: Blobs) -> None:
        super().__init__(staging)
        self._blobs = blobs
        self._heights: dict[Digest, int] = {}
        """Of what was added through this object."""

    def get(self, digest: Digest) -> Tree:
        """The verified node; raises E-STORE-MISSING or E-STORE-DAMAGED."""
        return decode(self.node(digest))

    def add(self, tree: Tree) -> Digest:
        """Stores a node whose references are known to be here; its digest."""
        children = tuple(e.digest.hex for _, e in tree.entries if isinstance(e, Directory))
        return Digest(self.add_node(tree.encode(), children))

    def add_all(self, nodes: Mapping[Digest, Tree]) -> None:
        """Stores nodes, children first.

        Raises E-TREE for a node under another's digest or over too many levels, and
        E-STORE-MISSING for a reference to something that is neither in `nodes` nor here; nothing
        that lacks a part is ever named.
        """
        for digest, tree in children_first(nodes):
            below = [e.digest for _, e in tree.entries if isinstance(e, Directory)]
            height = max((self._heights.get(d, 0) + 1 for d in below), default=0)
            check_depth(height, f"something in the tree {digest}")
            self._heights[digest] = height
            if self.contains(digest.hex):
                if tree.digest == digest:
                    self._confirm(digest.hex, tree.encode())
                continue
            if tree.digest != digest:
                raise ReprobuildError(
                    "E-TREE", f"a directory node has the digest {tree.digest}, not {digest}"
                )
            for name, entry in tree.entries:
                self._check_reference(digest, name, entry)
            self.add(tree)

    def _check_reference(self, digest: Digest, name: bytes, entry: object) -> None:
        if isinstance(entry, Directory):
            here = self.contains(entry.digest.hex)
        elif isinstance(entry, File):
            here = self._blobs.ensure_mode(entry)
        else:
            return
        if not here:
            raise ReprobuildError(
                "E-STORE-MISSING",
                f"the tree {digest} refers to {entry.digest} ({name!r}), which is not in the store",
                object=entry.digest.hex,
                referrer=digest.hex,
            )


def children_first(nodes: Mapping[Digest, Tree]) -> Iterator[tuple[Digest, Tree]]:
    """The nodes in an order in which each comes after those of its children that are given."""
    entered: set[Digest] = set()  # keys may lie, so a "cycle" has to end, too
    for start in nodes:
        stack = [(start, False)]
        while stack:
            digest, expanded = stack.pop()
            if expanded:
                yield digest, nodes[digest]
                continue
            if digest in entered:
                continue
            entered.add(digest)
            stack.append((digest, True))
            for _, entry in nodes[digest].entries:
                if isinstance(entry, Directory) and entry.digest in nodes:
                    stack.append((entry.digest, False))
