"""Whether a base holds a head's content although its history does not hold the head's commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Repository
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec
from reprobuild.core.integration.strategies import Stack

LIMIT = 200


@dataclass(frozen=True, slots=True)
class Absorption:
    """What a base makes of a head.

    `state` is `contained` (the commit is in its history), `absorbed` (merging changes nothing),
    `squashed_then_edited` (`at` held all of the head's content; later commits edited it), or
    `apart`.
    """

    number: int
    state: str
    at: GitOid | None = None

    def document(self) -> dict[str, object]:
        """The plain form."""
        return {
            "number": self.number,
            "state": self.state,
            "at": self.at.hex if self.at is not None else None,
        }


def absorptions(
    repository: Repository, spec: IntegrationSpec, base: GitOid | None = None
) -> list[Absorption]:
    """What `base` (the spec's own when not given) makes of each head, on its own."""
    from dataclasses import replace

    moved = spec if base is None else replace(spec, base=base)
    stack = Stack.start(repository, moved)
    return [_judge(repository, stack, head) for head in moved.heads]


def _judge(repository: Repository, stack: Stack, head: HeadSpec) -> Absorption:
    if stack.graph.in_base(head.head):
        return Absorption(head.number, "contained")
    if stack.squashed(head.head):
        return Absorption(head.number, "absorbed")
    at = _once_absorbed(repository, stack, head)
    if at is not None:
        return Absorption(head.number, "squashed_then_edited", at)
    return Absorption(head.number, "apart")


def _once_absorbed(repository: Repository, stack: Stack, head: HeadSpec) -> GitOid | None:
    """The first commit of the base's line, since the head left, that holds its content."""
    parted = repository.merge_base(stack.spec.base, head.head)
    if parted is None:
        return None
    tree = repository.commit(head.head).tree
    old = repository.commit(parted).tree
    wanted = {c.path: (c.new_mode, c.new) for c in repository.changes(old, tree)}
    if not wanted:
        return None
    for commit in _candidates(repository, parted, stack.spec.base, sorted(wanted)):
        here = repository.commit(commit).tree
        outcome = repository.merge(commit, head.head)
        if outcome.clean and outcome.tree == here:
            return commit
    return None


def _candidates(
    repository: Repository, parted: GitOid, base: GitOid, paths: Sequence[bytes]
) -> list[GitOid]:
    return repository.first_parents(parted, base, paths)[:LIMIT]
