"""The graph of derivations behind one or more targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest


@dataclass(slots=True)
class Graph:
    """Derivations by digest. Closed: whatever a node's inputs name is in it.

    It cannot hold a cycle: a digest is computed over the digests it refers to.
    """

    nodes: dict[Digest, Derivation] = field(default_factory=dict)
    _texts: dict[Digest, bytes] = field(default_factory=dict, repr=False, compare=False)
    """The documents as they were encoded to be hashed: the store wants them next."""

    def add(self, derivation: Derivation) -> Digest:
        """Adds a derivation whose inputs are here already; its digest."""
        digest, text = derivation.named()
        if digest not in self.nodes:
            for entry in derivation.inputs:
                if entry.drv not in self.nodes:
                    raise KeyError(f"{derivation.name} refers to {entry.drv}, which is not here")
            self.nodes[digest] = derivation
            self._texts[digest] = text
        return digest

    def document(self, digest: Digest) -> bytes:
        """The canonical document of a derivation that is here."""
        text = self._texts.get(digest)
        return text if text is not None else self.nodes[digest].named()[1]

    def closure(self, targets: Iterable[Digest]) -> set[Digest]:
        """Everything the targets need, themselves included."""
        seen: set[Digest] = set()
        stack = list(targets)
        while stack:
            digest = stack.pop()
            if digest not in seen:
                seen.add(digest)
                stack.extend(entry.drv for entry in self.nodes[digest].inputs)
        return seen

    def order(self, targets: Iterable[Digest]) -> list[Digest]:
        """The closure, inputs before what needs them, ties broken by digest."""
        import networkx

        closure = self.closure(targets)
        graph: networkx.DiGraph[Digest] = networkx.DiGraph()
        graph.add_nodes_from(closure)
        for digest in closure:
            graph.add_edges_from((entry.drv, digest) for entry in self.nodes[digest].inputs)
        return list(networkx.lexicographical_topological_sort(graph, key=lambda d: d.hex))

    def path(self, source: Digest, target: Digest) -> list[Digest]:
        """A shortest way from `source` down to `target`; empty when there is none."""
        import networkx

        graph: networkx.DiGraph[Digest] = networkx.DiGraph()
        for digest, derivation in self.nodes.items():
            graph.add_edges_from((digest, entry.drv) for entry in derivation.inputs)
        if source == target:
            return [source]
        try:
            return list(networkx.shortest_path(graph, source, target))
        except (networkx.NetworkXNoPath, networkx.NodeNotFound):
            return []

    def __iter__(self) -> Iterator[Digest]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


def documents(graph: Graph, digests: Iterable[Digest]) -> Mapping[Digest, bytes]:
    """Canonical derivation documents, for the store."""
    return {digest: graph.document(digest) for digest in digests}
