"""Hunks of changed files, and which head each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from reprobuild.core.encoding import Value

BASE = 0
"""Stands for the base among the numbers of heads."""

MAX_LINES = 40_000
CONTEXT = 3
MAX_LINE = 400


@dataclass(frozen=True, slots=True)
class Hunk:
    """`heads` are the pull requests that lines of it come from, on either side; empty means that
    it came with the base. Line numbers count from 1; a side without lines has the line before."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]
    heads: tuple[int, ...] = ()

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "heads": list(self.heads),
            "lines": list(self.lines),
            "new_lines": self.new_lines,
            "new_start": self.new_start,
            "old_lines": self.old_lines,
            "old_start": self.old_start,
        }


def is_text(data: bytes) -> bool:
    """As git sees it: no NUL byte in the first 8,000."""
    return b"\0" not in data[:8000]


def split(data: bytes) -> list[bytes]:
    """Lines, each with its own end."""
    return data.splitlines(keepends=True) if data else []


@dataclass(frozen=True, slots=True)
class Blame:
    """`lines` says for each line which head brought it (BASE: the base); `gone` says, by their
    text, of lines that are no longer there which heads took them away."""

    lines: tuple[int, ...]
    gone: dict[bytes, tuple[int, ...]]


def blame(versions: Sequence[tuple[int, bytes]]) -> Blame:
    """From a file's content after the base (number BASE) and after each head that touched it."""
    lines: list[bytes] = []
    owners: list[int] = []
    gone: dict[bytes, tuple[int, ...]] = {}
    for number, data in versions:
        after = split(data)
        taken: list[int] = []
        for tag, i1, i2, j1, j2 in _opcodes(lines, after):
            if tag == "equal":
                taken += owners[i1:i2]
                continue
            for line in lines[i1:i2]:
                before = gone.get(line, ())
                gone[line] = before if number in before else (*before, number)
            taken += [number] * (j2 - j1)
        lines, owners = after, taken
    return Blame(tuple(owners), gone)


def _opcodes(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[str, int, int, int, int]]:
    """Like SequenceMatcher's, after what both begin and end with was set aside."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    limit = min(len(old), len(new)) - start
    while end < limit and old[-1 - end] == new[-1 - end]:
        end += 1
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    found: list[tuple[str, int, int, int, int]] = []
    if start:
        found.append(("equal", 0, start, 0, start))
    if left or right:
        matcher = SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > 4000)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            found.append((tag, i1 + start, i2 + start, j1 + start, j2 + start))
    if end:
        found.append(("equal", len(old) - end, len(old), len(new) - end, len(new)))
    return found


def _text(mark: str, line: bytes) -> str:
    text = line.rstrip(b"\r\n").decode("utf-8", "replace")
    return mark + (text if len(text) <= MAX_LINE else text[:MAX_LINE] + "…")


def hunks(
    old: bytes, new: bytes, before: Blame | None = None, after: Blame | None = None
) -> list[Hunk] | None:
    """The hunks between two versions of a file; None when they are no text or too long.

    `before` and `after` say where each side's lines come from; without them hunks name no heads.
    """
    if not is_text(old) or not is_text(new):
        return None
    left, right = split(old), split(new)
    if len(left) + len(right) > MAX_LINES:
        return None
    groups: list[list[tuple[str, int, int, int, int]]] = [[]]
    for code in _opcodes(left, right):
        tag, i1, i2, _, j2 = code
        if tag != "equal":
            groups[-1].append(code)
        elif groups[-1] and i2 - i1 > 2 * CONTEXT:
            groups.append([])
        del i1, i2, j2
    return [_hunk(left, right, group, before, after) for group in groups if group]


def _hunk(
    old: Sequence[bytes],
    new: Sequence[bytes],
    group: Sequence[tuple[str, int, int, int, int]],
    before: Blame | None,
    after: Blame | None,
) -> Hunk:
    lead = min(CONTEXT, group[0][1], group[0][3])
    tail = min(CONTEXT, len(old) - group[-1][2], len(new) - group[-1][4])
    i, j = group[0][1] - lead, group[0][3] - lead
    lines = [_text(" ", line) for line in old[i : group[0][1]]]
    heads: set[int] = set()
    at = group[0][1]
    for _, i1, i2, j1, j2 in group:
        lines += [_text(" ", line) for line in old[at:i1]]
        lines += [_text("-", line) for line in old[i1:i2]]
        lines += [_text("+", line) for line in new[j1:j2]]
        at = i2
        if before is not None and after is not None:
            heads |= _owners(old[i1:i2], before.lines[i1:i2], after.gone)
            heads |= _owners(new[j1:j2], after.lines[j1:j2], before.gone)
    lines += [_text(" ", line) for line in old[at : at + tail]]
    old_end, new_end = group[-1][2] + tail, group[-1][4] + tail
    return Hunk(
        i + 1 if old_end > i else i,
        old_end - i,
        j + 1 if new_end > j else j,
        new_end - j,
        tuple(lines),
        tuple(sorted(heads - {BASE})),
    )


def _owners(
    lines: Sequence[bytes], owners: Sequence[int], gone: dict[bytes, tuple[int, ...]]
) -> set[int]:
    """Who is behind lines that one side alone has: those who took them from the other side, where
    it had them, else who brought them."""
    found: set[int] = set()
    for line, owner in zip(lines, owners, strict=True):
        takers = gone.get(line, ()) if line.strip() else ()
        found |= set(takers) if takers else {owner}
    return found
