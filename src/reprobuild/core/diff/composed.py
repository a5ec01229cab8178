"""A composed branch's way from the base: which head each commit on it brought."""

from __future__ import annotations

from reprobuild.core.diff.hunks import BASE
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Repository
from reprobuild.core.integration.model import IntegrationSpec

MAX_STEPS = 5000
"""Commits on the first-parent chain; a longer one is not told."""


def composed_stack(
    repository: Repository, spec: IntegrationSpec
) -> list[tuple[int, GitOid]] | None:
    """(number, tree) after the base and after each commit on the composition's first parents.

    A merge counts for the head that it merges, a picked commit for the one head that has a commit
    with its message; any other (a repair by hand, what the branch began with) for nobody: BASE.
    None where the chain does not lead to the base, or no commit on it is any head's.
    """
    owners = {head.head: head.number for head in spec.heads}
    for head in spec.heads:
        named = (*head.commits, *([head.merge_commit] if head.merge_commit is not None else []))
        owners |= dict.fromkeys(named, head.number)
    chain: list[tuple[int, GitOid]] = []
    picked = _messages(repository, spec)
    here = spec.composition
    while here is not None and here != spec.base:
        commit = repository.commit(here)
        brought = (here, *commit.parents[1:])
        number = next((owners[oid] for oid in brought if oid in owners), None)
        if number is None:
            number = picked.get(commit.message, BASE) if len(commit.parents) == 1 else BASE
        chain.append((number, commit.tree))
        if len(chain) > MAX_STEPS:
            return None
        here = commit.parents[0] if commit.parents else None
    if here is None or not any(number != BASE for number, _ in chain):
        return None
    return [(BASE, repository.commit(spec.base).tree), *reversed(chain)]


def _messages(repository: Repository, spec: IntegrationSpec) -> dict[bytes, int]:
    """The heads' own commits by their messages, less what several heads say: picking a commit
    gives it another name and leaves it its message."""
    graph = repository.graph(spec.base, [head.head for head in spec.heads])
    found: dict[bytes, int] = {}
    for head in spec.heads:
        for oid in graph.own(head.head):
            message = repository.commit(oid).message
            other = found.setdefault(message, head.number)
            if other != head.number:
                found[message] = BASE
    return found
