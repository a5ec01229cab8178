"""Explaining a conflict: with which heads, in which hunks, and whether another order would do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import ConflictedPath
from reprobuild.core.integration.model import HeadSpec
from reprobuild.core.integration.strategies import Stack, Step
from reprobuild.errors import ReprobuildError

MAX_BLOB = 2 * 2**20
_MARK = re.compile(rb"(<<<<<<<|=======|>>>>>>>)(?: [^\n]*)?\n?\Z")


@dataclass(frozen=True, slots=True)
class Hunk:
    """A place where two sides disagree; lines without their ends.

    `line` is where the hunk begins in the file with conflict markers, `ours_line` where it does in
    our side's file; both count from 1. `ours_by` are the earlier pull requests that brought the
    lines of our side (0: the base).
    """

    line: int
    ours_line: int
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    ours_by: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConflictPath:
    """A conflicted path: git's words for it, its hunks, who touched it, and the three blobs."""

    path: str
    kind: str
    hunks: tuple[Hunk, ...]
    touched_by: tuple[int, ...]
    ancestor: GitOid | None
    ours: GitOid | None
    theirs: GitOid | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a head does not go on.

    `with_heads` are the earlier heads it collides with; `minimal` the smallest set (of earlier
    heads, in order) with which it still fails – empty when it fails on the bare base. `order` is
    the nearest order in which it goes on, of as many heads as that takes; None when moving it
    never helps. `same_change`
    tells of commits whose patch-id is there already under another name.
    """

    number: int
    commit: GitOid | None
    paths: tuple[ConflictPath, ...]
    with_heads: tuple[int, ...]
    minimal: tuple[int, ...]
    order: tuple[int, ...] | None
    same_change: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """The plain form."""
        return {
            "pull_request": self.number,
            "commit": self.commit.hex if self.commit else None,
            "collides_with": list(self.with_heads),
            "minimal_set": [*self.minimal, self.number],
            "order_that_works": list(self.order) if self.order is not None else None,
            "same_change": list(self.same_change),
            "paths": [
                {
                    "path": p.path,
                    "kind": p.kind,
                    "touched_by": list(p.touched_by),
                    "ancestor": p.ancestor.hex if p.ancestor else None,
                    "ours": p.ours.hex if p.ours else None,
                    "theirs": p.theirs.hex if p.theirs else None,
                    "hunks": [
                        {
                            "line": h.line,
                            "ours_line": h.ours_line,
                            "ours": list(h.ours),
                            "theirs": list(h.theirs),
                            "ours_by": list(h.ours_by),
                        }
                        for h in p.hunks
                    ],
                }
                for p in self.paths
            ],
        }


def explain(stack: Stack, step: Step) -> Explanation:
    """Explains the step that failed on `stack` (its last one)."""
    earlier = [s for s in stack.steps if s is not step]
    paths = tuple(_path(stack, step, c) for c in _conflicts(step))
    minimal = _minimal(stack, step, earlier)
    blamed = {n for p in paths for h in p.hunks for n in h.ours_by if n}
    touched = {n for p in paths for n in p.touched_by}
    colliding = blamed or touched or set(minimal)
    order = [s.head.number for s in earlier]
    return Explanation(
        number=step.head.number,
        commit=step.commit,
        paths=paths,
        with_heads=tuple(n for n in order if n in colliding),
        minimal=minimal,
        order=_other_order(stack, step, earlier),
        same_change=_same_change(stack, step, earlier),
    )


def _conflicts(step: Step) -> Sequence[ConflictedPath]:
    assert step.outcome is not None
    return [c for c in step.outcome.conflicts if c.path]


def _path(stack: Stack, step: Step, conflict: ConflictedPath) -> ConflictPath:
    assert step.outcome is not None
    kinds = [k for k, paths, _ in step.outcome.messages if conflict.path in paths]
    kind = next((k for k in kinds if k.startswith("CONFLICT")), "CONFLICT")
    hunks: tuple[Hunk, ...] = ()
    if conflict.ours is not None and conflict.theirs is not None:
        hunks = _hunks(stack, step, conflict)
    return ConflictPath(
        path=conflict.path.decode("utf-8", "backslashreplace"),
        kind=kind,
        hunks=hunks,
        touched_by=tuple(stack.touching([conflict.path])),
        ancestor=conflict.ancestor.oid if conflict.ancestor else None,
        ours=conflict.ours.oid if conflict.ours else None,
        theirs=conflict.theirs.oid if conflict.theirs else None,
    )


def _hunks(stack: Stack, step: Step, conflict: ConflictedPath) -> tuple[Hunk, ...]:
    repository = stack.repository
    assert step.outcome is not None
    merged = repository.entry(step.outcome.tree, conflict.path)
    if merged is None:
        return ()
    content = repository.read_blob(merged.oid)
    if b"\0" in content[:8000] or len(content) > MAX_BLOB:
        return ()
    try:
        authors = _line_authors(stack, step, conflict.path)
    except ReprobuildError:
        authors = []
    hunks = []
    for line, before, ours, theirs in parse_markers(content):
        by = authors[before : before + len(ours)]
        hunks.append(Hunk(line, before + 1, _text(ours), _text(theirs), tuple(dict.fromkeys(by))))
    return tuple(hunks)


def _line_authors(stack: Stack, step: Step, path: bytes) -> list[int]:
    """For each line of our side, the pull request that brought it; 0 for the base."""
    owners: dict[GitOid, int] = {}
    tips = [s.before for s in stack.steps] + [stack.tip]
    for index, earlier in enumerate(stack.steps):
        if earlier.result is not None:
            owners.setdefault(tips[index + 1], earlier.head.number)
    owners.pop(stack.spec.base, None)
    return [owners.get(c, 0) for c in stack.repository.blame(step.before, path)]


def parse_markers(content: bytes) -> list[tuple[int, int, list[bytes], list[bytes]]]:
    """The conflict hunks of a file: (line in the file with markers, counted from 1; how many lines
    of our side stand before it; our lines; their lines)."""
    found = []
    ours: list[bytes] = []
    theirs: list[bytes] = []
    side = ""
    our_line, start, before = 0, 0, 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        mark = _MARK.match(line)
        kind = mark.group(1) if mark else b""
        if kind == b"<<<<<<<" and not side:
            side, ours, theirs, start, before = "ours", [], [], number, our_line
        elif kind == b"=======" and side == "ours":
            side = "theirs"
        elif kind == b">>>>>>>" and side == "theirs":
            found.append((start, before, ours, theirs))
            side = ""
        elif side == "theirs":
            theirs.append(line)
        else:
            our_line += 1
            if side == "ours":
                ours.append(line)
    return found


def _text(lines: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(line.rstrip(b"\r\n").decode("utf-8", "replace") for line in lines)


def works(stack: Stack, heads: Sequence[HeadSpec]) -> GitOid | None:
    """The tree that heads of the stack's spec give in this order; None when one does not go on."""
    trial = stack.fresh()
    for head in heads:
        try:
            if trial.push(head).failed:
                return None
        except ReprobuildError as error:
            if error.code not in ("E-CONFLICT", "E-INTEGRATION"):
                raise
            return None
    return trial.tree


def _minimal(stack: Stack, step: Step, earlier: Sequence[Step]) -> tuple[int, ...]:
    """The smallest set by taking heads away one by one while the last one still fails."""
    kept = [s.head for s in earlier if s.result is not None]

    def fails(heads: Sequence[HeadSpec]) -> bool:
        trial = stack.fresh()
        for head in heads:
            if trial.push(head).failed:
                return False  # another conflict, not this one
        return trial.push(step.head).failed

    for head in list(kept):
        fewer = [h for h in kept if h is not head]
        try:
            if fails(fewer):
                kept = fewer
        except ReprobuildError:
            continue
    return tuple(h.number for h in kept)


def _other_order(stack: Stack, step: Step, earlier: Sequence[Step]) -> tuple[int, ...] | None:
    """The order nearest to the one that is asked for: the head sooner, else later."""
    before = [s.head for s in earlier]
    after = [h for h in stack.spec.heads if h not in before and h != step.head]
    orders = [
        [*before[:place], step.head, *before[place:]] for place in range(len(before) - 1, -1, -1)
    ]
    orders += [[*before, *after[:count], step.head] for count in range(1, len(after) + 1)]
    for order in orders:
        if works(stack, order) is not None:
            return tuple(h.number for h in order)
    return None


def _same_change(stack: Stack, step: Step, earlier: Sequence[Step]) -> tuple[str, ...]:
    graph, repository = stack.graph, stack.repository
    own = [c for c in graph.own(step.head.head) if len(graph.parents[c]) <= 1]
    others = {
        c: s.head.number
        for s in reversed(earlier)
        for c in graph.own(s.head.head)
        if len(graph.parents[c]) <= 1 and c not in own
    }
    parted = repository.merge_base(stack.spec.base, step.head.head)
    in_base: list[GitOid] = []
    if parted is not None:
        paths = [c.path for c in _conflicts(step)]
        in_base = repository.first_parents(parted, stack.spec.base, paths)[-200:] if paths else []
    if not own:
        return ()
    ids = repository.patch_ids([*own, *others, *in_base])
    places = {ids[c]: f"PR #{n}" for c, n in others.items() if c in ids}
    places |= {ids[c]: f"the base ({c.hex[:12]})" for c in in_base if c in ids}
    return tuple(
        f"{c.hex[:12]} makes the change that {places[ids[c]]} makes"
        for c in own
        if ids.get(c) in places
    )
