"""Which fields of two documents differ: the same walk as hashing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reprobuild.core.encoding import Value, encode

MAX_LEVELS = 200
"""Keys that lead to a field; what lies deeper is compared as one value."""

ABSENT = None
"""Stands for a side that lacks the field; a canonical document tells it apart by `has`."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. `path` are the keys that lead to it; `has` says which of the two
    sides have it (old, new). Of lists of texts only the part that differs is kept."""

    path: tuple[str, ...]
    old: Value
    new: Value
    has: tuple[bool, bool] = (True, True)

    @property
    def name(self) -> str:
        """The path for people."""
        return ".".join(self.path)

    def document(self) -> dict[str, Value]:
        """The plain form; a side that lacks the field has no key."""
        out: dict[str, Value] = {"field": self.name}
        if self.has[0]:
            out["old"] = self.old
        if self.has[1]:
            out["new"] = self.new
        return out


def _named(value: Sequence[Value]) -> dict[str, Value] | None:
    """A list of objects that each have a distinct `name`, by it; None for any other list."""
    found: dict[str, Value] = {}
    for item in value:
        name = item.get("name") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = item
    return found


def changes(old: Value, new: Value, path: tuple[str, ...] = ()) -> Iterator[FieldChange]:
    """The fields that differ, in order of their paths (at most `MAX_LEVELS` long)."""
    if len(path) >= MAX_LEVELS:
        if old != new:
            yield FieldChange(path, old, new)
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            if key in old and key in new:
                yield from changes(old[key], new[key], (*path, key))
            elif key in old:
                yield FieldChange((*path, key), old[key], ABSENT, (True, False))
            else:
                yield FieldChange((*path, key), ABSENT, new[key], (False, True))
        return
    if _is_list(old) and _is_list(new):
        yield from _lists(old, new, path)  # type: ignore[arg-type]
        return
    if type(old) is not type(new) or old != new:
        yield FieldChange(path, old, new)


def _is_list(value: Value) -> bool:
    return isinstance(value, (list, tuple))


def _lists(
    old: Sequence[Value], new: Sequence[Value], path: tuple[str, ...]
) -> Iterator[FieldChange]:
    if list(old) == list(new):
        return
    named = _named(old), _named(new)
    if old and new and named[0] is not None and named[1] is not None:
        before = list(named[0])
        yield from changes(named[0], named[1], path)
        if [n for n in before if n in named[1]] != [n for n in named[1] if n in named[0]]:
            yield FieldChange((*path, "order"), before, list(named[1]))
        return
    texts = [encode(v) for v in old], [encode(v) for v in new]
    taken: list[Value] = []
    given: list[Value] = []
    if len(old) * len(new) > 4_000_000:
        yield FieldChange(path, list(old), list(new))
        return
    from difflib import SequenceMatcher  # most comparisons need none

    for tag, i1, i2, j1, j2 in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if tag != "equal":
            taken += old[i1:i2]
            given += new[j1:j2]
    yield FieldChange(path, taken, given)
