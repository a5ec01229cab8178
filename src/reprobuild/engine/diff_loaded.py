"""A side of a comparison with what it can be asked for. Imports no model of a project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.core.diff.dag import Node
    from reprobuild.core.diff.side import Side
    from reprobuild.core.graph import Graph
    from reprobuild.core.record import Record
    from reprobuild.engine.diff_stores import Store


@dataclass(slots=True)
class Loaded:
    """A side with what it can be asked for: derivations by digest, and a store where one is.

    `expected` says what recipes came out as elsewhere: trees (hex) by drv (hex) and output.
    """

    side: Side
    graph: Graph | None = None
    store: Store | None = None
    expected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _nodes: dict[str, Node | None] = field(default_factory=dict)
    _disputed: Mapping[Digest, Digest] | None = None

    def look(self, drv: str) -> Node | None:
        """A derivation, out of the evaluated graph or the store."""
        if drv not in self._nodes:
            self._nodes[drv] = self._find(drv)
        return self._nodes[drv]

    def has(self, drv: str) -> bool:
        """Whether a derivation's document is at hand."""
        try:
            digest = Digest.parse(drv)
        except ReprobuildError:
            return False
        if self.graph is not None and digest in self.graph.nodes:
            return True
        return self.store is not None and self.store.derivation(digest) is not None

    def _find(self, drv: str) -> Node | None:
        from reprobuild.core.diff.dag import node_of, node_of_document
        from reprobuild.core.encoding import decode

        try:
            digest = Digest.parse(drv)
        except ReprobuildError:
            return None
        if self.graph is not None and digest in self.graph.nodes:
            return node_of(self.graph.nodes[digest])
        data = self.store.derivation(digest) if self.store is not None else None
        document = decode(data) if data is not None else None
        return node_of_document(document) if isinstance(document, Mapping) else None

    def record(self, drv: str) -> Record | None:
        """The record last chosen for a derivation, where the store has one."""
        return self.store.realized(Digest(drv)) if self.store is not None and drv else None

    def action(self, drv: str) -> Digest | None:
        """The action that a derivation resolved to, also where its results are in dispute."""
        record = self.record(drv)
        if record is not None or self.store is None or not drv:
            return record.action if record is not None else None
        if self._disputed is None:
            self._disputed = self.store.disputed()
        return self._disputed.get(Digest(drv))

    def output(self, drv: str, output: str = "out") -> str:
        """The store tree that a derivation came out as (hex); empty where that is not known."""
        node = self.look(drv)
        fixed = node.fixed if node is not None else None
        if fixed is not None and fixed.get("tree"):
            return str(fixed["tree"])
        record = self.record(drv)
        tree = record.outputs.get(output) if record is not None else None
        return tree.hex if tree is not None else self.expected.get(drv, {}).get(output, "")


def tree_reader(*sides: Loaded) -> Callable[[Digest], bytes]:
    """Reads a directory node out of the first store that has it; raises E-STORE-MISSING."""
    stores = list({id(s.store): s.store for s in sides if s.store is not None}.values())

    def read(digest: Digest) -> bytes:
        for store in stores[:-1]:
            if store.contains(digest):
                return store.node(digest)
        if not stores:
            raise ReprobuildError("E-STORE-MISSING", f"there is no store to read {digest} from")
        return stores[-1].node(digest)

    return read


def content_at_hand(tree: str, *sides: Loaded) -> bool:
    """Whether one of the stores has a tree (hex)."""
    return bool(tree) and any(s.store.contains(Digest(tree)) for s in sides if s.store is not None)
