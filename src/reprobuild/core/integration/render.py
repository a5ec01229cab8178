"""Integrations, conflicts and stack maps as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reprobuild.core.integration.absorb import Absorption
from reprobuild.core.integration.algebra import COLLIDE, COMMUTE, Algebra
from reprobuild.core.integration.conflict import ConflictPath, Explanation, Hunk
from reprobuild.core.integration.model import Disposition, Integration, IntegrationSpec

_WIDTH = 46
_LINES = 12


def integration_text(spec: IntegrationSpec, done: Integration) -> Iterator[str]:
    """One line a head, a patch and an exclusion, then the identities."""
    titles = {h.number: h.title for h in spec.heads}
    for head in done.heads:
        remarks = []
        if head.squashed_in_base:
            remarks.append("squashed in the base")
        if head.contained_in:
            remarks.append(f"contained in PR #{head.contained_in}")
        if head.resolved:
            remarks.append("resolved by record: " + ", ".join(r.path for r in head.resolved))
        tail = f"  [{'; '.join(remarks)}]" if remarks else ""
        what = f"{head.head.hex[:12]}  {head.disposition.value}{tail}  {titles[head.number]}"
        yield f"  {f'#{head.number}':>7} {what}".rstrip()
    for patch in spec.patches:
        yield f"    patch {patch.sha256.hex[:12]}  applied  {patch.title or patch.path}"
    for left in spec.exclusions:
        what = f"{left.head.hex[:12]}  {Disposition.EXCLUDED.value}  [{left.disposition}]"
        yield f"  {f'#{left.number}':>7} {what}  {left.reason}"
    yield f"tree          {done.tree}"
    yield f"patch_sha256  {done.patch_sha256.hex}"
    yield f"patch_digest  {done.patch_digest}"


def explanation_text(found: Explanation, titles: Mapping[int, str] | None = None) -> Iterator[str]:
    """Why a head does not go on; `titles` are those of the pull requests that have one."""
    commit = f" (commit {found.commit.hex[:12]})" if found.commit else ""
    if found.with_heads:
        who = ", ".join(f"#{n}" for n in found.with_heads)
        yield f"PR #{found.number}{commit} collides with {who}"
    else:
        yield f"PR #{found.number}{commit} collides with the base itself"
    for number in (*found.with_heads, found.number):
        if titles and titles.get(number):
            yield f"  {f'#{number}':>7} {titles[number]}"
    for path in found.paths:
        yield from _path_text(found.number, path)
    for same in found.same_change:
        yield f"  note: {same}"
    smallest = ", ".join(f"#{n}" for n in (*found.minimal, found.number))
    yield f"  smallest set that cannot stand together: {smallest}"
    if found.order is None:
        yield f"  no order works that only moves PR #{found.number}"
    else:
        yield "  an order that works: " + ", ".join(f"#{n}" for n in found.order)


def _path_text(number: int, path: ConflictPath) -> Iterator[str]:
    by = ", ".join(f"#{n}" for n in path.touched_by) or "no earlier head"
    # the word git has for people, as in the error
    kind = path.kind.replace("(contents)", "(content)")
    yield f"  {path.path}: {kind}; touched before by {by}"
    for hunk in path.hunks:
        yield from _hunk_text(number, path.path, hunk)


def _hunk_text(number: int, path: str, hunk: Hunk) -> Iterator[str]:
    yield f"    {path}:{hunk.ours_line} as the heads before it leave it"
    by = ", ".join(f"#{n}" if n else "base" for n in hunk.ours_by) or "lines removed"
    yield f"    {f'stack ({by})':<{_WIDTH}} | PR #{number}"
    count = max(len(hunk.ours), len(hunk.theirs))
    for index in range(min(count, _LINES)):
        left = _cut(hunk.ours[index] if index < len(hunk.ours) else "")
        right = _cut(hunk.theirs[index] if index < len(hunk.theirs) else "")
        yield f"    {left:<{_WIDTH}} | {right}".rstrip()
    if count > _LINES:
        yield f"    … {count - _LINES} more lines"


def _cut(line: str) -> str:
    line = "".join(c if c.isprintable() else "·" for c in line.expandtabs(4))
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(f"#{n}" for n in numbers)


def algebra_text(found: Algebra, absorbed: list[Absorption]) -> Iterator[str]:
    """The stack's map."""
    states = {a.number: a for a in absorbed}
    for head in found.heads:
        notes = []
        if found.needs.get(head.number):
            notes.append("needs " + _numbers(found.needs[head.number]))
        needed_by = [h.number for h in found.heads if head.number in found.needs.get(h.number, ())]
        if needed_by:
            notes.append("is needed by " + _numbers(needed_by))
        others: dict[str, list[int]] = {}
        for pair in found.pairs:
            if pair.relation != COMMUTE and head.number in (pair.first, pair.second):
                verb = "collides with" if pair.relation == COLLIDE else "order matters with"
                other = pair.first if head.number == pair.second else pair.second
                others.setdefault(verb, []).append(other)
        notes += [f"{verb} {_numbers(numbers)}" for verb, numbers in others.items()]
        state = states.get(head.number)
        if state is not None and state.state == "absorbed":
            notes.append("its content is in the base already")
        elif state is not None and state.state == "squashed_then_edited" and state.at:
            notes.append(f"squashed into the base at {state.at.hex[:12]} and edited since")
        elif state is not None and state.state == "contained":
            notes.append("in the base already")
        number = f"#{head.number}"
        yield f"  {number:>7}  {'; '.join(notes) or 'commutes with every other head'}"
    for without in found.without:
        if without.tree is None:
            yield f"  without #{without.number}: #{without.fails_at} does not go on"
        else:
            yield f"  without #{without.number}: tree {without.tree}"
    core = _numbers(found.core) or "no head"
    yield f"order-independent core: {core}; tree {found.core_tree}"
    if found.tree is not None:
        yield f"tree of the whole stack: {found.tree}"
    else:
        yield f"the stack stops at PR #{found.failed}"
