"""What a stack of heads will change, as far as it is sure before the first one is applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Graph, Repository
from reprobuild.core.integration.model import IntegrationSpec, Strategy


def coming(
    repository: Repository, spec: IntegrationSpec, graph: Graph
) -> Iterator[tuple[GitOid, GitOid]]:
    """The trees that heads or picked commits change from and to, in order.

    Ends before a head whose merge base depends on what came before it. Raises as `commit` does.
    """
    seen: set[GitOid] = set()
    for head in spec.heads:
        own = graph.own(head.head)
        if spec.strategy is Strategy.CHERRY_PICK:
            yield from _picks(repository, graph, head.commits or tuple(own))
        elif not graph.in_base(head.head) and head.head not in seen:
            parted = graph.frontier(head.head)
            if len(parted) != 1 or not seen.isdisjoint(own):
                return
            seen |= own.keys()
            yield repository.commit(parted.pop()).tree, repository.commit(head.head).tree


def _picks(
    repository: Repository, graph: Graph, commits: Sequence[GitOid]
) -> Iterator[tuple[GitOid, GitOid]]:
    if not all(graph.in_base(c) for c in commits):
        for parts in map(repository.commit, commits):
            if len(parts.parents) == 1:
                yield repository.commit(parts.parents[0]).tree, parts.tree
