"""Root causes: one line for each, however many derivations inherit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprobuild.core.diff.text import short as short_digest

if TYPE_CHECKING:
    from reprobuild.core.diff.dag import GraphDiff
    from reprobuild.core.diff.fields import FieldChange
    from reprobuild.core.diff.side import Side
    from reprobuild.core.diff.sources import Base, HeadsDiff, PackageChange
    from reprobuild.core.encoding import Value


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
        from reprobuild.core.diff.rooted import Sorting

        Sorting(found, old, new, graph, sources).run()
    for kind, texts in image.items():
        if texts and kind not in found and not (graph is not None and graph.changes):
            found[kind] = Cause(kind, kind, f"{kind}: {names_of(list(texts))}")
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
    return names_of([f"#{n}" for n in numbers])


def names_of(names: Sequence[str]) -> str:
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
    return "release facts: " + (names_of(rows) or ", ".join(release))


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
