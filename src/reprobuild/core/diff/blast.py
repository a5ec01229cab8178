"""What each pull request that came, went or moved reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from reprobuild.core.diff.causes import component_of

if TYPE_CHECKING:
    from reprobuild.core.diff.causes import Cause
    from reprobuild.core.diff.comparison import Comparison, Touch
    from reprobuild.core.diff.dag import GraphDiff
    from reprobuild.core.diff.sources import HeadsDiff
    from reprobuild.core.encoding import Value

MAX_NAMES = 50
"""Kernels that are named; all are counted."""


def changed_heads(heads: HeadsDiff) -> list[tuple[int, str, str, str]]:
    """(number, what happened, commit, title) of every head that came, went, moved or was absorbed;
    in this order, each number once."""
    rows = [(h.number, "added", h.head, h.title) for h in heads.added]
    rows += [(n.number, "moved", n.head, n.title or o.title) for o, n in heads.moved]
    rows += [(h.number, "absorbed", h.head, h.title) for h in heads.absorbed]
    rows += [(h.number, "dropped", h.head, h.title) for h in heads.dropped]
    seen: dict[int, tuple[int, str, str, str]] = {}
    for row in rows:
        seen.setdefault(row[0], row)
    return list(seen.values())


def reached(found: Comparison, cause: Cause | None, touch: Touch | None = None) -> dict[str, Value]:
    """What follows from a cause: derivations, components, outputs, layers with bytes, kernels.

    `touch` says what one head of it really reaches, where that could be told.
    """
    reach: Iterable[str] = cause.reach if cause is not None else ()
    if touch is not None:
        reach = touch.keys
    keys = list(reach)
    graph = found.graph
    components: set[str] = set()
    names = {*found.old.components, *found.new.components}
    outputs = (found.old.output_name, found.new.output_name)
    verdicts = {"changed": 0, "identical": 0, "unknown": 0, "not-reproducible": 0}
    layered: set[str] = set()
    if graph is not None:
        for key in keys:
            change = graph.changes[key]
            if key in found.outputs:
                verdicts[found.outputs[key].verdict] += 1
            if cause is not None and _only_named(cause, graph, key):
                continue
            component = component_of(change.name, names, outputs)
            if component:
                components.add(component)
            if change.builder == "builtin:layer" and component:
                layered.add(component)
    elif cause is not None and cause.component:
        components.add(cause.component)
        layered.add(cause.component)
    if cause is not None and cause.component:
        components.add(cause.component)
    changed = found.layers.changed if found.layers is not None else ()
    moved = [layer for layer in changed if layer.component.partition(".")[0] in layered]
    sizes = [layer.size for layer in moved]
    known = found.layers is not None and None not in sizes
    return {
        "bytes": sum(size or 0 for size in sizes) if known else None,
        "components": sorted(components),
        "derivations": len(keys) if graph is not None else None,
        **_kernels(found, components, touch),
        "layers": [layer.component for layer in moved] if found.layers is not None else None,
        "outputs": dict(verdicts) if graph is not None else None,
    }


def _only_named(cause: Cause, graph: GraphDiff, key: str) -> bool:
    """Whether release facts reach a step in nothing but its name, which says the output's."""
    change = graph.changes[key]
    if cause.kind != "release" or change.builder in ("builtin:statement", "builtin:image"):
        return False
    return not any(below in cause.reach for below in change.below)


def _kernels(found: Comparison, components: Iterable[str], touch: Touch | None) -> dict[str, Value]:
    """Kernels that came, went or changed: of the compiles that a head touches, where there are
    any, else of the components."""
    if touch is not None and touch.narrowed:
        modules = [m for key in touch.units for m in found.unit_kernels.get(key, ())]
    else:
        modules = [m for name in sorted(components) for m in (found.kernels or {}).get(name, ())]
    named = {
        m.names.get(kernel, kernel)
        for m in modules
        for kernel in (*m.changed, *m.added, *m.removed)
    }
    count = sum(len(m.changed) + len(m.added) + len(m.removed) for m in modules)
    return {
        "kernel_names": sorted(named)[:MAX_NAMES],
        "kernels": count if found.kernels is not None else None,
    }


def pull_requests(found: Comparison) -> list[dict[str, Value]]:
    """The blast radius of each head that was added, dropped, moved or absorbed.

    Where it could be told what each step reads, a head reaches what its own files touch. Else what
    lies beyond files is what its component reaches, together with the heads in `shared_with`.
    """
    causes = {c.component: c for c in found.causes if c.kind == "source"}
    rows: list[dict[str, Value]] = []
    for name, diff in found.sources.items():
        heads = changed_heads(diff.heads)
        files = found.files.get(name)
        same = diff.tree[0] == diff.tree[1] and bool(diff.tree[0])
        for number, what, commit, title in heads:
            touch = found.touches.get((name, number))
            reach = reached(found, causes.get(name), touch)
            apart = touch is not None and touch.told
            row: dict[str, Value] = {
                "change": what,
                "component": name,
                "head": commit,
                "number": number,
                "title": title,
                **reach,
                "documents": list(documents_of(found, name)),
                "files": None,
                "labels": sorted(k for k in found.labels if f".{name}." in k),
                "shared_with": [n for n, *_ in heads if n != number and not apart],
                "tree_unchanged": same,
                "units": _units(found, touch),
            }
            if same:
                row["files"] = []
            elif files is not None and files.attributed:
                row["files"] = [f.path for f in files.files if number in f.heads]
            rows.append(row)
    return rows


def _units(found: Comparison, touch: Touch | None) -> Value:
    """Which compiles read something of a head, of how many that compile its component's source;
    None where that could not be told, or nothing there is compiled so."""
    if touch is None or not touch.narrowed or found.graph is None:
        return None
    names = [found.graph.changes[key].name for key in touch.units]
    return {"of": touch.narrowed, "reached": names}


def documents_of(found: Comparison, component: str = "") -> Mapping[str, str]:
    """The release documents that say something else now, and what about."""
    out: dict[str, list[str]] = {}

    def say(document: str, why: str) -> None:
        if why not in out.setdefault(document, []):
            out[document].append(why)

    moved = [n for n, d in found.sources.items() if d.moved or d.status != "kept"]
    for name in [component] if component else moved:
        if name in moved:
            say("contract", f"source of {name}")
            say("statement", f"component {name}")
            say("changelog", f"source of {name}")
    if component:
        return _joined(out)
    if found.packages:
        say("runbook", "dependencies")
        say("changelog", "dependencies")
    if found.release:
        for document in ("contract", "runbook", "statement"):
            say(document, "release facts")
    if found.environment or found.serving:
        say("runbook", "environment and serving defaults")
        say("profiles", "environment and serving defaults")
    if found.layers is not None and found.layers.changed:
        say("runbook", "image digests")
        say("profiles", "image reference")
    return _joined(out)


def _joined(rows: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: ", ".join(whys) for name, whys in sorted(rows.items())}
