"""What of a component's source can be reproduced: from its pins, and from branch heads alone."""

from __future__ import annotations

from dataclasses import dataclass

from reprobuild.core.documents.facts import SourceView

UNKNOWN = "not verified here"


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of one component; the texts are what documents say.

    `to_merge` are the pull requests that the branch still lacks.
    """

    from_pins: str
    from_branches: str
    to_merge: tuple[int, ...]
    none_left: str = "none"
    tip: str = ""
    """The branch's commit that was looked at, where a repository was."""


def stated(view: SourceView) -> SourceState:
    """Out of lock and flake alone, without a look into any repository.

    A head that is already in the pinned base is in the branch, too. Of others it is not known
    whether the branch took them since, so they count as still to be merged.
    """
    landed = {head.number for head in view.landed}
    left = tuple(head.number for head in view.heads if head.number not in landed)
    if view.pinned:
        pins = "yes"
    elif view.base and view.tree and all(head.head for head in view.heads):
        pins = "stated; not integrated here"
    else:
        pins = "open: no base commit is stated" if not view.base else "open"
    if not left:
        return SourceState(pins, "yes: every head is in the base", ())
    merged = f"; {view.merged} of them are merged since" if view.merged else ""
    return SourceState(pins, f"no{merged}", left)


def unreached(view: SourceView) -> SourceState:
    """Where the repository could not be looked into: what is stated, and that it was not checked.

    The list of what is still to be merged stays: nobody has said that it is shorter.
    """
    pins = f"stated; {UNKNOWN}" if view.base else "open: no base commit is stated"
    return SourceState(pins, UNKNOWN, stated(view).to_merge, UNKNOWN)


def verified(
    view: SourceView, tip: str, matches: bool | None, left: tuple[int, ...], same_tree: bool
) -> SourceState:
    """After a look: `matches` says whether the pins gave the stated tree (None: no base is stated,
    and on no commit of the branch do the heads give it), `left` which heads would still change the
    branch at `tip`, `same_tree` whether that branch holds the very tree."""
    if matches is None:
        pins = "open: no base commit is stated, and none of the branch gives this tree"
    else:
        pins = "yes" if matches else "NO: another tree comes out"
    if same_tree:
        branches = f"yes: the branch at {tip[:12]} holds this tree"
    elif not left:
        branches = f"the heads are in the branch at {tip[:12]}, which has moved on"
    else:
        branches = f"no, at {tip[:12]}"
    return SourceState(pins, branches, left, tip=tip)
