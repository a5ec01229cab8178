"""A comparison as the one document that every format is rendered from (docs/diff.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reprobuild.core.diff import blast
from reprobuild.core.diff.comparison import Comparison, OutputChange
from reprobuild.core.diff.side import ComponentSide, Side

if TYPE_CHECKING:
    from reprobuild.core.diff.causes import Cause
    from reprobuild.core.encoding import Value

FORMAT = 0
SHOWN_FILES = 200
SHOWN_HUNK_LINES = 4000
SHOWN_DERIVATIONS = 200


def document(found: Comparison, *, everything: bool = False) -> dict[str, Value]:
    """The document. Without `everything`, long lists end early and say how many are left."""
    causes: list[Value] = [_cause(found, c) for c in found.causes]
    kernels, lost = _kernels(found)
    out: dict[str, Value] = {
        "format": FORMAT,
        "old": _side(found.old),
        "new": _side(found.new),
        "causes": causes,
        "components": {
            name: _component(found, name, everything)
            for name in sorted({*found.old.components, *found.new.components})
        },
        "derivations": _derivations(found, everything),
        "documents": dict(blast.documents_of(found)),
        "environment": _pairs(found.environment),
        "equal": _equal(found),
        "graph": [dict(row) for row in found.nodes],
        "inputs": {
            name: {row.name: row.document() for row in rows}
            for name, rows in found.packages.items()
        },
        "kernels": kernels,
        "labels": _pairs(found.labels),
        "layers": _layers(found),
        "not_reproducible": [o.document() for o in found.not_reproducible],
        "notes": list(found.notes),
        "pull_requests": list(blast.pull_requests(found)),
        "release": _pairs(found.release),
        "serving": _pairs(found.serving),
    }
    out["checks"] = _checks(found, lost)
    return out


def _equal(found: Comparison) -> bool:
    """Whether nothing at all was found to differ."""
    layers = found.layers
    return not (
        found.causes
        or found.labels
        or found.not_reproducible
        or (layers is not None and (layers.changed or layers.dropped))
        or (found.graph is not None and found.graph.changes)
    )


def _side(side: Side) -> dict[str, Value]:
    image = side.image
    return {
        "config_digest": (image.config_digest or None) if image else None,
        "isolation": side.isolation or None,
        "kind": side.kind,
        "manifest_digest": (image.manifest_digest or None) if image else None,
        "name": side.name,
        "reference": (image.reference if image else "") or side.release.get("reference") or None,
    }


def _pairs(rows: Mapping[str, tuple[Value, Value]]) -> dict[str, Value]:
    return {name: {"new": new, "old": old} for name, (old, new) in rows.items()}


def _pair(old: str, new: str, **more: Value) -> dict[str, Value]:
    same = old == new if old and new else None
    return {"equal": same, "new": new or None, "old": old or None, **more}


def _component(found: Comparison, name: str, everything: bool) -> dict[str, Value]:
    old = found.old.components.get(name) or ComponentSide(name)
    new = found.new.components.get(name) or ComponentSide(name)
    diff = found.sources[name]
    output = found.component_outputs.get(name) or OutputChange(name, old.output, new.output)
    content = found.content.get(name)
    files = found.files.get(name)
    rows: list[Value] = []
    left = 0
    if files is not None:
        limit = len(files.files) if everything else SHOWN_FILES
        rows, left = _files(files.files[:limit], everything), max(len(files.files) - limit, 0)
    used = {*old.inputs, *new.inputs}
    out: dict[str, Value] = {
        "base": diff.base.document(),
        "dependencies": {
            f"{input_name}/{row.name}" if row.name != input_name else row.name: row.document()
            for input_name, changes in found.packages.items()
            if input_name in used or not used
            for row in changes
        },
        "drv": _pair(old.drv, new.drv),
        "files": {
            "attributed": files.attributed if files else False,
            "changed": rows if files is not None and files.compared else None,
            "more": left,
            "note": files.note if files else "",
        },
        "heads": diff.heads.document(),
        "output": _pair(
            output.old,
            output.new,
            verdict=output.verdict,
            **_content(content, everything) if content is not None else {"files": None},
        ),
        "patch": {
            "digest": _pair(old.patch_digest, new.patch_digest),
            "sha256": _pair(old.patch_sha256, new.patch_sha256),
        },
        "repository": new.repository or old.repository or None,
        "status": _status(found, name),
        "strategy": _pair(old.strategy, new.strategy),
        "tree": _pair(old.tree, new.tree),
        "version": _pair(old.version, new.version),
    }
    return out


def _status(found: Comparison, name: str) -> str:
    diff = found.sources[name]
    if diff.status != "kept":
        return diff.status
    moved = diff.moved or (
        name in found.component_outputs
        and found.component_outputs[name].verdict in ("changed", "not-reproducible")
    )
    return "changed" if moved else "kept"


def _files(files: Sequence[object], everything: bool) -> list[Value]:
    rows: list[Value] = []
    budget = SHOWN_HUNK_LINES
    for file in files:
        row = file.document()  # type: ignore[attr-defined]
        lines = sum(len(h["lines"]) for h in row["hunks"] or ())
        budget -= lines
        if budget < 0 and not everything:
            row["hunks"] = None
            row["note"] = f"{lines} lines of hunks: see --all"
        rows.append(row)
    return rows


def _content(content: object, everything: bool) -> dict[str, Value]:
    files = content.files  # type: ignore[attr-defined]
    limit = len(files) if everything else SHOWN_FILES
    return {
        "files": [{"path": p, "size": s, "status": k} for p, k, s in files[:limit]],
        "files_changed": len(files),
        "note": content.note,  # type: ignore[attr-defined]
    }


def _cause(found: Comparison, cause: Cause) -> dict[str, Value]:
    reach = blast.reached(found, cause)
    own = len(cause.nodes)
    return {
        "component": cause.component or None,
        "details": list(cause.details),
        "derivations": own if found.graph is not None else None,
        "fields": [row.document() for row in cause.fields],
        "inherits": len(cause.reach) - own if found.graph is not None else None,
        "key": cause.key,
        "kind": cause.kind,
        "reaches": reach,
        "title": cause.title,
    }


def _derivations(found: Comparison, everything: bool) -> dict[str, Value]:
    graph = found.graph
    if graph is None:
        return {"compared": False, "note": "neither side brings its recipes"}
    verdict = {k: o.verdict for k, o in found.outputs.items()}
    rows: list[Value] = [
        {
            "fields": [row.document() for row in c.fields],
            "kind": c.kind.value,
            "name": c.key,
            "new": c.new or None,
            "old": c.old or None,
            "output": verdict.get(c.key, "unknown"),
        }
        for c in graph.changes.values()
    ]
    shown = rows if everything else rows[:SHOWN_DERIVATIONS]
    return {
        "changed": len(rows),
        "compared": True,
        "counts": dict(graph.counts()),
        "equal": found.equal_derivations,
        "list": shown,
        "more": len(rows) - len(shown),
        "outputs": {
            word: sum(o.verdict == word for o in found.outputs.values())
            for word in ("identical", "changed", "unknown", "not-reproducible")
        },
        "unknown": list(graph.unknown),
    }


def _kernels(found: Comparison) -> tuple[dict[str, Value], list[str]]:
    if found.kernels is None:
        note = found.kernels_note or "kernels were not compared"
        return {"compared": False, "modules": {}, "note": note}, []
    modules: dict[str, Value] = {}
    lost: list[str] = []
    counts = dict.fromkeys(("added", "changed", "kept", "removed"), 0)
    for component, rows in found.kernels.items():
        for module in rows:
            counts["kept"] += module.kept
            counts["added"] += len(module.added)
            counts["removed"] += len(module.removed)
            counts["changed"] += len(module.changed)
            if module.any:
                modules[f"{component}:{module.path}"] = module.document()
            lost += [f"{module.path}: {module.names.get(k, k)}" for k in module.removed]
            lost += [f"{module.path}: its code for {arch}" for arch in module.archs_lost]
    return {
        "compared": True, "counts": dict(counts), "modules": modules, "note": found.kernels_note,
    }, lost  # fmt: skip


def _layers(found: Comparison) -> dict[str, Value]:
    if found.layers is None:
        empty: dict[str, Value] = dict.fromkeys(("bytes_to_pull", "bytes_uncompressed"))
        return {**empty, "changed": [], "compared": False, "dropped": [], "kept": [],
                "note": found.layers_note}  # fmt: skip
    return {**found.layers.document(), "compared": True, "note": found.layers_note}


ISOLATION = ("full", "remote", "host-toolchain", "none")
"""core.derivation.Isolation, weakest last; importing it would cost more than the report."""

CHECKS = ("new-root-cause", "non-reproducible", "kernel-lost", "downgrade", "isolation-weaker")


def _checks(found: Comparison, lost: Sequence[str]) -> dict[str, Value]:
    """For each kind of --fail-on, what would make it fail."""
    weaker: list[str] = []
    pairs = [
        ("the isolation that the release requires",
         found.old.release.get("isolation", ""), found.new.release.get("isolation", "")),
        ("the isolation that the builds had", found.old.isolation, found.new.isolation),
    ]  # fmt: skip
    for what, old, new in pairs:
        if old in ISOLATION and new in ISOLATION and ISOLATION.index(new) > ISOLATION.index(old):
            weaker.append(f"{what}: {old} → {new}")
    back = [f"{n}: base {d.base.old[:10]} → {d.base.new[:10]} goes back"
            for n, d in found.sources.items() if d.base.back]  # fmt: skip
    return {
        "downgrade": [*found.downgrades, *back],
        "isolation-weaker": list(weaker),
        "kernel-lost": list(lost),
        "new-root-cause": [c.title for c in found.causes if c.kind != "release"],
        "non-reproducible": [o.name for o in found.not_reproducible],
    }
