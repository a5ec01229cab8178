"""Comparing two graphs of derivations from the top: equal digests are never opened.

Derivations are matched by the role they play for what uses them. One whose own fields differ is a
*root*; one that differs only in the digests of its inputs *inherits*. What is told apart here is
what is hashed: `Derivation.document()`, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from reprobuild.core.derivation import Derivation
from reprobuild.core.diff.fields import FieldChange, changes
from reprobuild.core.encoding import Value


class Kind(StrEnum):
    """What happened to a derivation."""

    ROOT = "root"
    INHERITS = "inherits"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Node:
    """A derivation as it is compared: `document` is the hashed one less its inputs' digests."""

    name: str
    document: Mapping[str, Value]
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The drv (hex) behind each input's name."""
    origin: Mapping[str, Value] = field(default_factory=dict)

    @property
    def fixed(self) -> Mapping[str, Value] | None:
        """What a fetch promises; None for a build."""
        fixed = self.document.get("fixed")
        return fixed if isinstance(fixed, Mapping) else None


def node_of(derivation: Derivation) -> Node:
    """From a derivation of an evaluated graph."""
    found = node_of_document(derivation.document())
    name = derivation.name
    if derivation.fixed is not None and derivation.fixed.filename:
        name = f"{name.partition(':')[0]}/{stem(derivation.fixed.filename)}"
    return Node(name, found.document, found.inputs, derivation.origin)


def node_of_document(document: Mapping[str, Value]) -> Node:
    """From a stored derivation document. A fetch has no name in it: it gets its file's."""
    if "fixed" in document:
        fixed = cast("Mapping[str, Value]", document["fixed"])
        name = str(fixed.get("filename") or fixed.get("kind") or "fetch")
        return Node(name, {"fixed": fixed})
    own = dict(document)
    inputs = cast("Mapping[str, Mapping[str, Value]]", own.pop("inputs", {}))
    own["inputs"] = {n: {k: v for k, v in e.items() if k != "drv"} for n, e in inputs.items()}
    return Node(str(own.get("name", "")), own, {n: str(e["drv"]) for n, e in inputs.items()})


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A derivation that differs between the two sides.

    `old`, `new` are drv digests (hex; empty where a side lacks it); `fields` its own fields that
    differ; `below` the keys of changed derivations that it uses.
    """

    key: str
    name: str
    kind: Kind
    old: str
    new: str
    fields: tuple[FieldChange, ...] = ()
    below: tuple[str, ...] = ()
    builder: str = ""
    origin: tuple[Mapping[str, Value], Mapping[str, Value]] = ({}, {})
    fixed: tuple[Mapping[str, Value] | None, Mapping[str, Value] | None] = (None, None)
    steps: tuple[str, str] = ("", "")
    """The derivation's own name on each side."""


Look = Callable[[str], "Node | None"]
"""Gives a derivation by its digest (hex); None where it is not at hand."""

Explained = Callable[[FieldChange, Node, Node], bool]
"""Whether a field only repeats what another level says already (an image's label of a drv)."""


@dataclass(slots=True)
class GraphDiff:
    """What differs, inputs before what uses them. `unknown` names derivations not at hand."""

    changes: dict[str, NodeChange] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def of(self, kind: Kind) -> list[NodeChange]:
        """The changes of one kind."""
        return [c for c in self.changes.values() if c.kind is kind]

    def counts(self) -> dict[str, int]:
        """How many changes of each kind there are."""
        return {kind.value: len(self.of(kind)) for kind in Kind}

    def reach(self, keys: Iterable[str]) -> set[str]:
        """The given changes and all that use them, directly or not."""
        users: dict[str, list[str]] = {}
        for key, change in self.changes.items():
            for below in change.below:
                users.setdefault(below, []).append(key)
        found: set[str] = set()
        stack = list(keys)
        while stack:
            key = stack.pop()
            if key not in found:
                found.add(key)
                stack += users.get(key, ())
        return found


_STEM = re.compile(r"([A-Za-z0-9][A-Za-z0-9.+]*(?:[-_](?!\d)[A-Za-z0-9.+]+)*)")


def stem(filename: str) -> str:
    """What stays of a package's file name when its version moves."""
    if filename.endswith(".deb"):
        return filename.partition("_")[0].lower()
    if filename.endswith(".whl"):
        return filename.partition("-")[0].lower().replace("-", "_")
    match = _STEM.match(filename)
    return match[1].lower().replace("-", "_") if match else filename


def role(node: Node, input_name: str) -> str:
    """By what a derivation is recognised among the inputs of the one that uses it."""
    fixed = node.fixed
    if fixed is None:
        return "drv " + node.name
    if fixed.get("filename"):
        return "file " + stem(str(fixed["filename"]))
    label = str(node.origin.get("input") or "")
    return f"{fixed.get('kind')} {label or input_name}"


class _Walk:
    def __init__(self, old: Look, new: Look, rename: Callable[[str], str], explained: Explained):
        self.looks, self.rename, self.explained = (old, new), rename, explained
        self.result = GraphDiff()
        self._keys: dict[tuple[str, str], str] = {}
        self._names: dict[str, int] = {}
        self._roots: Sequence[tuple[str, str]] = ()
        self._closures: dict[int, set[str]] = {}

    def key(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def run(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._roots = pairs
        stack: list[tuple[str, str, bool]] = [(o, n, False) for o, n in reversed(pairs)]
        while stack:
            old, new, ready = stack.pop()
            if (old, new) in self._keys or old == new or self._elsewhere(old, new):
                continue
            nodes = (self._look(0, old), self._look(1, new))
            children = self._children(*nodes)
            if not ready:
                stack.append((old, new, True))
                stack += [(o, n, False) for o, n in reversed(children) if o != n]
                continue
            self._emit(old, new, nodes, children)

    def _elsewhere(self, old: str, new: str) -> bool:
        """Whether what one side lacks in this role has another role there: nothing came or went."""
        if (old and new) or (old, new) in self._roots:
            return False
        return (old or new) in self._closure(1 if old else 0)

    def _closure(self, side: int) -> set[str]:
        """All derivations of a side; walked only when something seems to come or go."""
        if side not in self._closures:
            found: set[str] = set()
            stack = [pair[side] for pair in self._roots if pair[side]]
            while stack:
                drv = stack.pop()
                if drv not in found:
                    found.add(drv)
                    node = self.looks[side](drv)
                    stack += node.inputs.values() if node is not None else ()
            self._closures[side] = found
        return self._closures[side]

    def _look(self, side: int, drv: str) -> Node | None:
        if not drv:
            return None
        found = self.looks[side](drv)
        if found is None and drv not in self.result.unknown:
            self.result.unknown.append(drv)
        return found

    def _emit(
        self,
        old: str,
        new: str,
        nodes: tuple[Node | None, Node | None],
        children: Sequence[tuple[str, str]],
    ) -> None:
        before, after = nodes
        shown = after or before
        name = self.rename(shown.name) if shown is not None else (new or old)[:12]
        fields: tuple[FieldChange, ...] = ()
        if not old:
            kind = Kind.ADDED
        elif not new:
            kind = Kind.REMOVED
        elif before is None or after is None:
            kind = Kind.ROOT
        else:
            fields = tuple(self._own(before, after))
            kind = Kind.ROOT if fields else Kind.INHERITS
        key = self._keys[old, new] = self.key(name)
        below = tuple(self._keys[pair] for pair in children if pair in self._keys)
        self.result.changes[key] = NodeChange(
            key,
            name,
            kind,
            old,
            new,
            fields,
            tuple(dict.fromkeys(below)),
            str(shown.document.get("builder", "fetch")) if shown is not None else "",
            (before.origin if before else {}, after.origin if after else {}),
            (before.fixed if before else None, after.fixed if after else None),
            (before.name if before else "", after.name if after else ""),
        )

    def _own(self, before: Node, after: Node) -> Iterable[FieldChange]:
        same = {**before.document, "name": self.rename(before.name)}
        other = {**after.document, "name": self.rename(after.name)}
        if before.fixed is not None:
            same, other = dict(before.document), dict(after.document)
        partners = self._partners(before, after)
        ports = _renumbered(before, after, partners)
        for change in changes(same, other):
            if change.path[:1] == ("inputs",) and (ports or self._told_below(change, partners)):
                continue
            if not self.explained(change, before, after):
                yield change

    def _told_below(self, change: FieldChange, partners: Sequence[tuple[str, str]]) -> bool:
        """Whether an input that only one side has is a change of its own: added or removed."""
        return (
            len(change.path) == 2
            and not all(change.has)
            and any(not (a and b) for a, b in partners)
        )

    def _partners(self, before: Node, after: Node) -> list[tuple[str, str]]:
        """Input names of both sides that play one role; empty where a side has none."""
        left: list[tuple[str, str]] = []
        waiting = dict(after.inputs)
        for match in (_same_drv, _same_role, _same_name):
            for name, drv in before.inputs.items():
                if any(name == pair[0] for pair in left):
                    continue
                found = match(self, name, drv, waiting)
                if found is not None:
                    left.append((name, found))
                    del waiting[found]
        paired = {a for a, _ in left}
        left += [(name, "") for name in before.inputs if name not in paired]
        left += [("", name) for name in waiting]
        return left

    def _children(self, before: Node | None, after: Node | None) -> list[tuple[str, str]]:
        if before is None or after is None:
            return []  # what an added derivation brings along is counted, not explained
        return [
            (before.inputs.get(a, ""), after.inputs.get(b, ""))
            for a, b in self._partners(before, after)
        ]

    def role(self, side: int, drv: str, name: str) -> str:
        node = self.looks[side](drv)
        if node is None:
            return f"? {name}"
        if node.fixed is None:
            return "drv " + self.rename(node.name)
        return role(node, name)


def _same_drv(_: _Walk, name: str, drv: str, waiting: Mapping[str, str]) -> str | None:
    if waiting.get(name) == drv:
        return name
    return next((n for n, d in waiting.items() if d == drv), None)


def _same_role(walk: _Walk, name: str, drv: str, waiting: Mapping[str, str]) -> str | None:
    wanted = walk.role(0, drv, name)
    if name in waiting and walk.role(1, waiting[name], name) == wanted:
        return name
    return next((n for n, d in waiting.items() if walk.role(1, d, n) == wanted), None)


def _same_name(walk: _Walk, name: str, drv: str, waiting: Mapping[str, str]) -> str | None:
    return name if name in waiting and not re.search(r"\d\Z", name) else None


def _renumbered(before: Node, after: Node, partners: Sequence[tuple[str, str]]) -> bool:
    """Whether the inputs differ in nothing but numbers at the end of their names."""
    shapes = before.document.get("inputs"), after.document.get("inputs")
    if not isinstance(shapes[0], Mapping) or not isinstance(shapes[1], Mapping):
        return False
    if shapes[0] == shapes[1] or not all(a and b for a, b in partners):
        return False
    return all(shapes[0][a] == shapes[1][b] for a, b in partners)


def compare(
    old: Look,
    new: Look,
    pairs: Sequence[tuple[str, str]],
    *,
    rename: Callable[[str], str] = lambda name: name,
    explained: Explained = lambda change, before, after: False,
) -> GraphDiff:
    """Compares what hangs below `pairs` of drv digests (hex; empty where a side has none).

    `rename` brings derivation names of both sides to one form; `explained` says which fields
    follow from another level and make no root cause.
    """
    walk = _Walk(old, new, rename, explained)
    walk.run(pairs)
    return walk.result
