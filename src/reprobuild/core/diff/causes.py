"""Root causes: one line for each, however many derivations inherit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.diff import facts
from reprobuild.core.diff.dag import GraphDiff, Kind, NodeChange
from reprobuild.core.diff.fields import FieldChange
from reprobuild.core.diff.side import Side
from reprobuild.core.diff.sources import Base, HeadsDiff, PackageChange
from reprobuild.core.diff.text import short as short_digest
from reprobuild.core.encoding import Value, encode


@dataclass(frozen=True, slots=True)
class SourceDiff:
    """What happened to one component's source and version."""

    component: str
    status: str
    base: Base
    heads: HeadsDiff
    tree: tuple[str, str] = ("", "")
    version: tuple[str, str] = ("", "")
    strategy: tuple[str, str] = ("", "")

    @property
    def moved(self) -> bool:
        """Whether the declared source differs, even where its tree came out the same."""
        return (
            self.base.old != self.base.new
            or self.heads.any
            or self.tree[0] != self.tree[1]
            or self.strategy[0] != self.strategy[1]
        )


@dataclass(slots=True)
class Cause:
    """A root cause. `nodes` are keys of the graph's changes that it is seen in; `reach` all that
    follow from it, those included."""

    key: str
    kind: str
    title: str
    component: str = ""
    nodes: list[str] = field(default_factory=list)
    fields: list[FieldChange] = field(default_factory=list)
    reach: set[str] = field(default_factory=set)
    details: list[str] = field(default_factory=list)


def causes_of(
    old: Side,
    new: Side,
    sources: Mapping[str, SourceDiff],
    packages: Mapping[str, Sequence[PackageChange]],
    graph: GraphDiff | None,
    release: Mapping[str, tuple[str | None, str | None]],
    image: Mapping[str, Mapping[str, tuple[Value, Value]]],
) -> list[Cause]:
    """All root causes, the most telling kinds first.

    `image` are the changes of labels, environment and serving that no other level explains, as
    seen from the images themselves: they count where there are no recipes to tell.
    """
    found: dict[str, Cause] = {}
    for diff in sources.values():
        cause = _source_cause(diff)
        if cause is not None:
            found[cause.key] = cause
    for name, rows in packages.items():
        key = _input_key(name, sources, old, new)
        if key not in found and not _with_component(name, sources, old, new):
            found[key] = _package_cause(key, name, rows)
    if set(release) - FOLLOWING or (release and not found):
        found["release"] = Cause("release", "release", _release_title(release))
    if graph is not None:
        _Sorting(found, old, new, graph, sources).run()
    for kind, texts in image.items():
        if texts and kind not in found and not (graph is not None and graph.changes):
            found[kind] = Cause(kind, kind, f"{kind}: {_names(list(texts))}")
    if graph is None or graph.unknown:
        _unexplained(found, old, new, sources)
    order = {kind: i for i, kind in enumerate(KINDS)}
    return sorted(found.values(), key=lambda c: (order.get(c.kind, len(order)), c.key))


KINDS = (
    "component", "source", "base-image", "toolchain", "dependency", "path", "recipe",
    "environment", "serving", "labels", "contract-program", "unknown", "release",
)  # fmt: skip
"""In the order in which they are told."""


def _input_key(name: str, sources: Mapping[str, SourceDiff], old: Side, new: Side) -> str:
    """A git input that is one component's source is told as that source."""
    for component, diff in sources.items():
        either = new.components.get(component) or old.components.get(component)
        kind = (new.inputs or {}).get(name) or (old.inputs or {}).get(name)
        if either is None or kind is None or kind.kind not in ("git", "fixture"):
            continue
        if name in either.inputs and diff.moved and either.base in (kind.rev, diff.base.new):
            return f"source:{component}"
    return f"input:{name}"


def _with_component(name: str, sources: Mapping[str, SourceDiff], old: Side, new: Side) -> bool:
    """Whether an input came or went with the only components that use it."""
    users = {c.name for side in (old, new) for c in side.components.values() if name in c.inputs}
    return bool(users) and all(sources[u].status in ("added", "dropped") for u in users)


def _source_cause(diff: SourceDiff) -> Cause | None:
    name = diff.component
    if diff.status in ("added", "dropped"):
        return Cause(f"component:{name}", "component", f"component {name} {diff.status}", name)
    if not diff.moved:
        return None
    parts: list[str] = []
    base, heads = diff.base, diff.heads
    if base.old != base.new and base.old and base.new:
        count = f" ({base.commits} commit{'s' * (base.commits != 1)})" if base.commits else ""
        way = " back" if base.back else ""
        parts.append(f"base {base.old[:10]} → {base.new[:10]}{way}{count}")
    parts += [f"+#{h.number}" for h in heads.added]
    parts += [f"−#{h.number}" for h in heads.dropped]
    parts += [f"#{new.number} moved" for _, new in heads.moved]
    if heads.absorbed:
        parts.append("absorbed by the base: " + _numbers([h.number for h in heads.absorbed]))
    if heads.reordered:
        parts.append(f"{_numbers(heads.reordered)} reordered")
    for _, new in heads.changed:
        parts.append(f"#{new.number} now {new.disposition}")
    if diff.strategy[0] != diff.strategy[1] and all(diff.strategy):
        parts.append(f"strategy {diff.strategy[0]} → {diff.strategy[1]}")
    if not parts:
        parts.append("another tree" if all(diff.tree) else "another source")
    if diff.tree[0] == diff.tree[1] and diff.tree[0]:
        parts.append("and the tree is the same")
    lines = [f"+ #{h.number} {h.head[:10]}  {h.title}".rstrip() for h in heads.added]
    lines += [f"− #{h.number} {h.head[:10]}  {h.title}".rstrip() for h in heads.dropped]
    lines += [
        f"~ #{n.number} {o.head[:10]} → {n.head[:10]}  {n.title or o.title}".rstrip()
        for o, n in heads.moved
    ]
    shown = parts if len(parts) <= 9 else [*parts[:8], f"and {len(parts) - 8} more"]
    return Cause(f"source:{name}", "source", f"{name}: {', '.join(shown)}", name, details=lines)


def _numbers(numbers: Sequence[int]) -> str:
    return _names([f"#{n}" for n in numbers])


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _package_cause(key: str, name: str, rows: Sequence[PackageChange]) -> Cause:
    lines = [package_line(row) for row in rows]
    kind = "dependency"
    if rows[0].kind == "path":
        kind = "path"
    elif rows[0].kind == "oci":
        kind = "base-image"
    if rows[0].toolchain:
        kind = "toolchain"
    more = f" and {len(lines) - 2} more" if len(lines) > 2 else ""
    return Cause(key, kind, f"input {name}: {', '.join(lines[:2])}{more}", details=lines)


def package_line(row: PackageChange) -> str:
    """A package's change in a few words."""
    if not row.old_digest:
        return f"+{row.name} {short_digest(row.new)}".rstrip()
    if not row.new_digest:
        return f"−{row.name} {short_digest(row.old)}".rstrip()
    if row.rebuilt:
        return f"{row.name} {short_digest(row.new)}: other bytes under the same version"
    return f"{row.name} {short_digest(row.old)} → {short_digest(row.new)}"


FOLLOWING = frozenset({"reference", "cache_fingerprint"})
"""Facts that are made out of others: the tag names trees, and so does the JIT caches' name."""


def _release_title(release: Mapping[str, tuple[str | None, str | None]]) -> str:
    rows = [f"{k} {a or '(none)'} → {b or '(none)'}" for k, (a, b) in release.items()
            if k not in FOLLOWING | {"title", "output"}]  # fmt: skip
    return "release facts: " + (_names(rows) or ", ".join(release))


class _Sorting:
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
            cause.title = f"{_where(cause, change)}: {_fields(cause.fields)}"
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
            first.title = f"{_names(names)} ({len(first.nodes)} recipes): {_fields(first.fields)}"


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


def _fields(rows: Sequence[FieldChange]) -> str:
    lines = [field_line(row) for row in rows]
    return "; ".join(lines[:2]) + (f"; and {len(lines) - 2} fields more" if len(lines) > 2 else "")


def component_of(name: str, components: set[str], outputs: tuple[str, str] = ("", "")) -> str:
    """The component that a derivation's name belongs to; empty where it is none of them."""
    parts = name.split(":", maxsplit=1)[0].split(".")
    if parts[0] in ("sources", "inputs") and len(parts) > 1:
        return parts[1] if parts[0] == "sources" else ""
    if parts[0] in outputs and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in components else ""


def _unexplained(
    found: dict[str, Cause], old: Side, new: Side, sources: Mapping[str, SourceDiff]
) -> None:
    """Components whose drv differs for a reason that neither side's facts give."""
    for name, diff in sources.items():
        one, other = old.components.get(name), new.components.get(name)
        if one is None or other is None or not one.drv or not other.drv:
            continue
        told = any(c.component == name or c.kind in ("toolchain", "dependency")
                   for c in found.values())  # fmt: skip
        if one.drv != other.drv and not told:
            version = f", version {' → '.join(diff.version)}" if diff.version[0] != diff.version[
                1] else ""  # fmt: skip
            key = f"unknown:{name}"
            found[key] = Cause(key, "unknown", f"{name}: another recipe{version}; neither side "
                               "says which field", name)  # fmt: skip
