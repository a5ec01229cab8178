"""Heads that are not where they were pinned: what they were, what they are, how to accept that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class MovedHead:
    """A pull request whose ref points elsewhere now (`live` None: the ref is gone)."""

    number: int
    pinned: GitOid
    live: GitOid | None
    range_diff: str = ""

    def document(self) -> dict[str, object]:
        """The plain form."""
        return {
            "number": self.number,
            "pinned": self.pinned.hex,
            "live": self.live.hex if self.live else None,
            "range_diff": self.range_diff,
        }


def moved_heads(spec: IntegrationSpec, refs: Mapping[str, GitOid]) -> list[MovedHead]:
    """The spec's heads whose refs point elsewhere (or nowhere) in `refs`."""
    return [
        MovedHead(h.number, h.head, refs.get(h.full_ref))
        for h in spec.heads
        if refs.get(h.full_ref) != h.head
    ]


def both_sides(spec: IntegrationSpec, moved: MovedHead) -> IntegrationSpec | None:
    """A spec that needs exactly what a range-diff of a moved head needs."""
    if moved.live is None:
        return None
    head = HeadSpec(moved.number, moved.live, commits=(moved.pinned,))
    return IntegrationSpec(Strategy.MERGE, spec.base, (head,))


def moved_error(moved: MovedHead, accept: str) -> ReprobuildError:
    """The error for one moved head; `accept` is the command that pins where it is now."""
    if moved.live is None:
        return ReprobuildError(
            "E-HEAD-MOVED",
            f"PR #{moved.number} is gone: {moved.pinned} is pinned, and its ref is no more",
            hint="drop the head, or pin another one",
            pull_request=moved.number,
            expected=moved.pinned.hex,
        )
    return ReprobuildError(
        "E-HEAD-MOVED",
        f"PR #{moved.number} moved: {moved.pinned} is pinned, remote is {moved.live}",
        hint=f"review the range-diff, then accept it with `{accept}`",
        pull_request=moved.number,
        expected=moved.pinned.hex,
        got=moved.live.hex,
        range_diff=moved.range_diff.splitlines()[:200] or None,
    )
