"""Why a derivation is another one than when its installable was last realized."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reprobuild.core.diff import facts
from reprobuild.core.diff.dag import GraphDiff, Kind, Node, NodeChange, compare
from reprobuild.core.diff.fields import FieldChange
from reprobuild.core.diff.rooted import field_line
from reprobuild.core.diff.side import Side
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph
from reprobuild.engine.diff_loaded import Loaded
from reprobuild.engine.diff_stores import Store
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Catalog


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One derivation against the last realized one that plays its role.

    `change` is None where it is the same; `roots` are the changes from which it follows, itself
    included when its own fields differ; `between` counts what merely hands them on.
    """

    name: str
    old: str
    new: str
    change: NodeChange | None
    roots: tuple[NodeChange, ...] = ()
    between: int = 0

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "between": self.between,
            "changed": self.change is not None,
            "name": self.name,
            "new": self.new or None,
            "old": self.old or None,
            "roots": [
                {
                    "content": _content(root),
                    "fields": [row.document() for row in root.fields],
                    "kind": root.kind.value,
                    "name": root.name,
                    "new": root.new or None,
                    "old": root.old or None,
                }
                for root in self.roots
            ],
        }

    def lines(self) -> list[str]:
        """For people."""
        if self.change is None:
            return [f"{self.name}: its recipe is the one that was last realized"]
        out = [f"{self.name}  {self.old[:12] or '(none)'} → {self.new[:12]}"]
        told: dict[str, list[str]] = {}
        for root in self.roots:
            where = "its own" if root is self.change else root.name
            for line in [field_line(row) for row in root.fields] or [_said(root)]:
                told.setdefault(line, []).append(where)
        for line, every in told.items():
            names = list(dict.fromkeys(every))
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            out.append(f"  {', '.join(names[:3])}{more}: {line}")
        if self.between:
            out.append(f"  {self.between} derivations between merely inherit")
        return out


def _content(change: NodeChange) -> Value:
    return [dict(side) if side is not None else None for side in change.fixed]


def _said(change: NodeChange) -> str:
    if change.kind is Kind.ADDED:
        return "was not there"
    if change.kind is Kind.REMOVED:
        return "is no longer there"
    return "its recipe is not at hand"


def last_realized(store: Catalog, root: str, installable: str) -> dict[str, str]:
    """The drvs (hex) of an installable when it was last realized; raises E-NOT-REALIZED."""
    data = store.root(root)
    if data is None:
        raise ReprobuildError(
            "E-NOT-REALIZED", f"{installable} was not realized here yet", installable=installable
        )
    answer = json.loads(data)["answer"]
    return {
        str(name): str(row["drv"]).removeprefix(Digest.PREFIX)
        for name, row in answer["outputs"].items()
    }


def why_rebuilt(
    graph: Graph,
    roots: Mapping[str, Digest],
    last: Mapping[str, str],
    target: Digest,
    store: Store,
    components: Sequence[str] = (),
) -> Rebuilt:
    """Compares what hangs below `roots` with what did when it was last realized, and looks at
    `target` in it. `components` are those whose drvs an image's labels repeat."""
    now = Loaded(Side("now", "installable"), graph, store)
    before = Loaded(Side("before", "store"), None, store)
    pairs = [(last[name], drv.hex) for name, drv in roots.items() if name in last]
    found = compare(before.look, now.look, pairs, explained=_derived(components))
    name = graph.nodes[target].name
    change = next((c for c in found.changes.values() if c.new == target.hex), None)
    if change is None:
        return Rebuilt(name, target.hex, target.hex, None)
    below = _below(found, change)
    roots_found = tuple(c for c in below if c.kind is not Kind.INHERITS)
    between = sum(c.kind is Kind.INHERITS and c is not change for c in below)
    return Rebuilt(name, change.old, change.new, change, roots_found, between)


def _derived(components: Sequence[str]) -> Callable[[FieldChange, Node, Node], bool]:
    """Labels that repeat a component's drv follow from it; a release's facts are causes here."""

    def explained(change: FieldChange, before: Node, after: Node) -> bool:
        builder = str(after.document.get("builder", ""))
        return facts.attribute(change, builder, components)[0] == facts.COMPONENT

    return explained


def _below(found: GraphDiff, change: NodeChange) -> list[NodeChange]:
    seen: dict[str, NodeChange] = {}
    stack = [change.key]
    while stack:
        key = stack.pop()
        if key not in seen:
            seen[key] = found.changes[key]
            stack += found.changes[key].below
    return list(seen.values())
