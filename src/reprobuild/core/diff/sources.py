"""The inputs' level: what happened to base, heads and dependencies of a component."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.diff.side import ComponentSide, Head, InputSide
from reprobuild.core.encoding import Value


@dataclass(frozen=True, slots=True)
class HeadsDiff:
    """Heads by what happened to them. `moved` are (old, new) of one number; `reordered` are the
    numbers that changed places among those that both sides have; `absorbed` those that the new
    base holds (and the old did not), whether still listed or not; `changed` those whose
    disposition moved otherwise, with their commit the same."""

    added: tuple[Head, ...] = ()
    dropped: tuple[Head, ...] = ()
    moved: tuple[tuple[Head, Head], ...] = ()
    reordered: tuple[int, ...] = ()
    absorbed: tuple[Head, ...] = ()
    changed: tuple[tuple[Head, Head], ...] = ()
    kept: int = 0

    @property
    def any(self) -> bool:
        """Whether anything happened to the list of heads."""
        return bool(
            self.added or self.dropped or self.moved or self.reordered or self.absorbed
            or self.changed
        )  # fmt: skip

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "added": [_head(h) for h in self.added],
            "dropped": [_head(h) for h in self.dropped],
            "moved": [
                {"number": new.number, "old": old.head, "new": new.head,
                 "title": new.title or old.title}
                for old, new in self.moved
            ],
            "reordered": list(self.reordered),
            "absorbed": [_head(h) for h in self.absorbed],
            "disposition": [
                {"number": new.number, "old": old.disposition, "new": new.disposition}
                for old, new in self.changed
            ],
            "kept": self.kept,
        }  # fmt: skip


def _head(head: Head) -> dict[str, Value]:
    return {
        "number": head.number,
        "head": head.head,
        "disposition": head.disposition,
        "title": head.title,
    }


def longest_rising(values: Sequence[int]) -> set[int]:
    """The members of a longest rising subsequence: what need not be moved."""
    tails: list[int] = []
    where: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values):
        at = bisect_left(tails, value)
        before.append(where[at - 1] if at else -1)
        tails[at : at + 1] = [value]
        where[at : at + 1] = [index]
    kept: set[int] = set()
    index = where[-1] if where else -1
    while index >= 0:
        kept.add(values[index])
        index = before[index]
    return kept


IN_BASE = "already_in_base"


def compare_heads(
    old: Sequence[Head], new: Sequence[Head], contained: Iterable[int] = ()
) -> HeadsDiff:
    """What happened between two lists; `contained` are dropped heads that the new base holds."""
    before, after = {h.number: h for h in old}, {h.number: h for h in new}
    both = [n for n in before if n in after]
    place = {number: index for index, number in enumerate(n for n in after if n in before)}
    stay = longest_rising([place[n] for n in both])
    in_base = set(contained)
    absorbed = [
        after[n]
        for n in both
        if after[n].disposition == IN_BASE and before[n].disposition not in (IN_BASE, "")
    ]
    absorbed += [h for n, h in before.items() if n not in after and n in in_base]
    return HeadsDiff(
        added=tuple(h for n, h in after.items() if n not in before),
        dropped=tuple(h for n, h in before.items() if n not in after),
        moved=tuple((before[n], after[n]) for n in both if before[n].head != after[n].head),
        reordered=tuple(sorted(n for n in both if place[n] not in stay)),
        absorbed=tuple(absorbed),
        changed=tuple(
            (before[n], after[n])
            for n in both
            if before[n].disposition != after[n].disposition
            and before[n].head == after[n].head
            and before[n].disposition
            and after[n].disposition
            and after[n] not in absorbed
        ),
        kept=sum(before[n].head == after[n].head for n in both),
    )


@dataclass(frozen=True, slots=True)
class PackageChange:
    """One package of an input: a version, or its bytes under the same version. A side that lacks
    it has empty texts. `rebuilt` says that only the bytes differ."""

    input: str
    name: str
    kind: str
    old: str
    new: str
    old_digest: str = ""
    new_digest: str = ""
    toolchain: bool = False

    @property
    def rebuilt(self) -> bool:
        """One version, other bytes."""
        return self.old == self.new and self.old_digest != self.new_digest

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "input": self.input,
            "kind": self.kind,
            "new": self.new or None,
            "new_digest": self.new_digest or None,
            "old": self.old or None,
            "old_digest": self.old_digest or None,
            "toolchain": self.toolchain,
        }


def compare_inputs(
    old: Mapping[str, InputSide], new: Mapping[str, InputSide]
) -> dict[str, list[PackageChange]]:
    """The packages that changed, by input, in order of their names."""
    found: dict[str, list[PackageChange]] = {}
    for name in sorted({*old, *new}):
        one, other = old.get(name), new.get(name)
        if one != other:
            rows = list(_input(name, one, other))
            if rows:
                found[name] = rows
    return found


def _input(name: str, old: InputSide | None, new: InputSide | None) -> Iterable[PackageChange]:
    either = new or old
    assert either is not None
    toolchain = either.toolchain or (old is not None and old.toolchain)
    before = {p.name: p for p in old.packages} if old else {}
    after = {p.name: p for p in new.packages} if new else {}
    for package in sorted({*before, *after}):
        one, other = before.get(package), after.get(package)
        if one != other:
            yield PackageChange(
                name, package, either.kind,
                one.version if one else "", other.version if other else "",
                one.digest if one else "", other.digest if other else "", toolchain,
            )  # fmt: skip
    digests = (old.digest if old else "", new.digest if new else "")
    if digests[0] != digests[1]:
        revs = (old.rev if old else "", new.rev if new else "")
        texts = revs if revs[0] != revs[1] else digests
        yield PackageChange(name, name, either.kind, *texts, *digests, toolchain)


@dataclass(frozen=True, slots=True)
class Base:
    """The base of a component: `commits` between the two, where git could count them."""

    old: str
    new: str
    ref: str = ""
    commits: int | None = None
    back: bool = False
    """Whether the new base is an ancestor of the old one."""
    subjects: tuple[str, ...] = field(default=())

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "back": self.back,
            "commits": self.commits,
            "moved": self.old != self.new,
            "new": self.new or None,
            "old": self.old or None,
            "ref": self.ref or None,
            "subjects": list(self.subjects),
        }


def status(old: ComponentSide | None, new: ComponentSide | None) -> str:
    """`added`, `dropped`, or whether what both sides say is the same."""
    if old is None:
        return "added"
    if new is None:
        return "dropped"
    keys = ("drv", "output", "tree", "base", "version", "patch_sha256")
    moved = any(
        getattr(old, k) and getattr(new, k) and getattr(old, k) != getattr(new, k) for k in keys
    )
    heads = [(h.number, h.head) for h in old.heads] != [(h.number, h.head) for h in new.heads]
    return "changed" if moved or heads else "kept"
