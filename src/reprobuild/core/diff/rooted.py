"""The roots of a graph's changes, each handed to the cause that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprobuild.core.diff import facts
from reprobuild.core.diff.causes import Cause, SourceDiff, component_of, names_of
from reprobuild.core.diff.dag import GraphDiff, Kind, NodeChange
from reprobuild.core.diff.fields import FieldChange
from reprobuild.core.diff.side import Side
from reprobuild.core.diff.text import short as short_digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.wording import plural


class Sorting:
    """Hands each root of the graph to the cause it belongs to, and counts what follows."""

    def __init__(
        self,
        found: dict[str, Cause],
        old: Side,
        new: Side,
        graph: GraphDiff,
        sources: Mapping[str, SourceDiff],
    ) -> None:
        self.found, self.graph, self.sources = found, graph, sources
        self.components = {*old.components, *new.components}
        self.outputs = (old.output_name, new.output_name)
        self.inputs = {**(old.inputs or {}), **(new.inputs or {})}

    def run(self) -> None:
        for change in self.graph.changes.values():
            for cause in self._causes(change):
                if change.key not in cause.nodes:
                    cause.nodes.append(change.key)
        self._merge_recipes()
        for cause in self.found.values():
            if cause.kind == "release":
                cause.nodes += self._named_after_output()
            elif cause.kind in ("component", "source") and not cause.nodes:
                cause.nodes += self._describing()
            cause.reach = self.graph.reach(cause.nodes)

    def _causes(self, change: NodeChange) -> list[Cause]:
        fixed = change.fixed[1] or change.fixed[0]
        if fixed is not None:
            return [self._leaf(change, fixed)] if change.kind is not Kind.INHERITS else []
        if change.kind in (Kind.ADDED, Kind.REMOVED):
            return [self._step(change)]
        if change.kind is not Kind.ROOT:
            return []
        if not change.fields:
            title = f"{change.name}: its recipe is not at hand on both sides"
            return [self._take(f"unknown:{change.key}", "unknown", title)]
        causes: list[Cause] = []
        for row in change.fields:
            kind, _ = facts.attribute(row, change.builder, self.components)
            if kind in (facts.RECIPE, facts.RELEASE, facts.COMPONENT):
                cause = self._take(f"recipe:{change.key}", "recipe", "", component_of(
                    change.name, self.components, self.outputs))  # fmt: skip
            else:
                cause = self._take(kind, kind, "")
            cause.fields.append(row)
            causes.append(cause)
        for cause in causes:
            cause.title = f"{_where(cause, change)}: {field_lines(cause.fields)}"
        return causes

    def _step(self, change: NodeChange) -> Cause:
        """A build that one side has not: with its component, or a step of its own."""
        component = component_of(change.name, self.components, self.outputs)
        whole = self.found.get(f"component:{component}")
        if whole is not None:
            return whole
        word = "added" if change.kind is Kind.ADDED else "removed"
        return self._take(f"step:{change.key}", "recipe", f"{change.name}: {word}", component)

    def _leaf(self, change: NodeChange, fixed: Mapping[str, Value]) -> Cause:
        origin = change.origin[1] or change.origin[0]
        label = str(origin.get("input") or "")
        own = change.name.removeprefix("sources.")
        key = f"source:{own}" if change.name.startswith("sources.") else f"input:{label}"
        if not label and fixed.get("kind") == "git-tree":  # out of a store: its name is not told
            trees = tuple(str((side or {}).get("oid") or "") for side in change.fixed)
            key = next((f"source:{n}" for n, d in self.sources.items() if d.tree == trees), key)
        if key not in self.found and key.startswith("input:") and label:
            for cause in self.found.values():
                if cause.kind == "source" and cause.component == label:
                    return cause
        if key in self.found:
            return self.found[key]
        for cause in self.found.values():  # fetches out of the store have no origin
            if not label and any(stem in change.name for stem in _mentioned(cause)):
                return cause
        kinds = {"oci-image": "base-image", "tree": "path"}
        kind = kinds.get(str(fixed.get("kind")), "dependency")
        pin = self.inputs.get(label)
        if pin is not None and pin.toolchain:
            kind = "toolchain"
        sides = [_content(side) for side in change.fixed]
        return self._take(key if label else f"content:{change.key}", kind,
                          f"{change.name}: {sides[0]} → {sides[1]}")  # fmt: skip

    def _take(self, key: str, kind: str, title: str, component: str = "") -> Cause:
        return self.found.setdefault(key, Cause(key, kind, title, component))

    def _named_after_output(self) -> list[str]:
        return [
            c.key
            for c in self.graph.changes.values()
            if c.builder in ("builtin:image", "builtin:statement")
            or (c.steps[0] != c.steps[1] and c.steps[0].startswith(self.outputs[0] + "."))
        ]

    def _describing(self) -> list[str]:
        return [c.key for c in self.graph.changes.values()
                if c.builder in ("builtin:image", "builtin:statement")]  # fmt: skip

    def _merge_recipes(self) -> None:
        """One cause for one change, in however many recipes it stands."""
        same: dict[bytes, list[Cause]] = {}
        for key in [k for k in self.found if k.startswith("recipe:")]:
            cause = self.found[key]
            text = encode([row.document() for row in cause.fields])
            same.setdefault(text, []).append(cause)
        for first, *others in same.values():
            if not others:
                continue
            names = sorted({c.component or c.nodes[0] for c in (first, *others)})
            for cause in others:
                first.nodes += cause.nodes
                del self.found[cause.key]
            first.component = names[0] if len(names) == 1 else ""
            first.details = list(first.nodes)
            recipes = plural(len(first.nodes), "recipe")
            first.title = f"{names_of(names)} ({recipes}): {field_lines(first.fields)}"


def _where(cause: Cause, change: NodeChange) -> str:
    return change.name if cause.kind == "recipe" else cause.kind


def _mentioned(cause: Cause) -> list[str]:
    if cause.kind not in ("dependency", "toolchain"):
        return []
    return [line.lstrip("+−").split(" ")[0].lower().replace("-", "_") for line in cause.details]


def _content(fixed: Mapping[str, Value] | None) -> str:
    if fixed is None:
        return "(none)"
    for key in ("filename", "oid", "tree", "sha256"):
        if fixed.get(key):
            return short_digest(str(fixed[key]))
    return "?"


def short(value: Value) -> str:
    """A field's value in a few words."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
        text = " ".join(str(v) for v in value)
    else:
        text = encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"


def field_line(row: FieldChange) -> str:
    """A field's change in a few words."""
    if not row.has[0] or row.old in ([], ()):
        return f"{row.name} +{short(row.new)}"
    if not row.has[1] or row.new in ([], ()):
        return f"{row.name} −{short(row.old)}"
    return f"{row.name} {short(row.old)} → {short(row.new)}"


def field_lines(rows: Sequence[FieldChange]) -> str:
    lines = [field_line(row) for row in rows]
    return "; ".join(lines[:2]) + (f"; and {len(lines) - 2} fields more" if len(lines) > 2 else "")
