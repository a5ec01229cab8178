"""The terminal report: fits a screen, one line for one root cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reprobuild.core.wording import plural, size

Doc = Mapping[str, Any]

WIDTH = 110
MAX_CAUSES = 12
MAX_PULLS = 8
MAX_ROWS = 6


def inert(text: str) -> str:
    """A foreign text for a terminal: control characters show as what they are."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def render_text(doc: Doc, *, everything: bool = False) -> str:
    """The report of a document (report.py)."""
    return "\n".join(inert(line) for line in _lines(doc, everything)) + "\n"


def _lines(doc: Doc, everything: bool) -> Iterator[str]:
    for word, side in (("old", doc["old"]), ("new", doc["new"])):
        reference = side["reference"] or ""
        yield f"{word}  {side['name']}" + (f"  {reference}" if reference else "")
    if doc["equal"]:
        yield ""
        yield "nothing differs"
        yield from _notes(doc)
        return
    for row in doc["not_reproducible"]:
        yield ""
        yield f"NOT REPRODUCIBLE: {row['derivation']}: one recipe gave different trees"
        for tree in row["conflict"] or (row["old"], row["new"]):
            yield f"  {tree}"
    yield ""
    yield from _causes(doc, everything)
    yield from _pulls(doc, everything)
    yield from _levels(doc, everything)
    yield from _notes(doc)


def _folded(lead: str, text: str) -> Iterator[str]:
    """A line, and its rest below the lead where it is longer than a terminal is wide."""
    row = ""
    for word in text.split(" "):  # by hand: importing textwrap costs more than the whole report
        if row and len(lead) + len(row) + 1 + len(word) > WIDTH:
            yield (lead + row).rstrip()
            lead, row = " " * len(lead), word
        else:
            row = f"{row} {word}" if row else word
    yield (lead + row).rstrip()


def _limited(rows: Any, limit: int, everything: bool) -> Iterator[Any]:
    yield from rows if everything else rows[:limit]


def _left(rows: Any, limit: int, everything: bool, what: str) -> Iterator[str]:
    if len(rows) > limit and not everything:
        yield f"  … and {len(rows) - limit} more {what} (--all)"


def _causes(doc: Doc, everything: bool) -> Iterator[str]:
    causes = doc["causes"]
    yield plural(len(causes), "root cause")
    for cause in _limited(causes, MAX_CAUSES, everything):
        yield from _folded(f"  {cause['kind']:<16} ", f"{cause['title']}{_follows(cause)}")
        if everything:
            yield from (f"      {line}" for line in cause["details"])
            for row in cause["fields"]:
                old, new = row.get("old"), row.get("new")
                yield f"      {row['field']}: {old!r} → {new!r}"
    yield from _left(causes, MAX_CAUSES, everything, "causes")


def _follows(cause: Doc) -> str:
    inherits = cause["inherits"]
    if not inherits:
        return ""
    return f"  ({plural(inherits, 'derivation')} inherit{'s' if inherits == 1 else ''})"


def _pulls(doc: Doc, everything: bool) -> Iterator[str]:
    rows = doc["pull_requests"]
    if not rows:
        return
    yield ""
    shared = any(row["shared_with"] for row in rows)
    yield "pull requests" + ("  (what lies beyond files is reached together)" if shared else "")
    marks = {"added": "+", "dropped": "−", "moved": "~", "absorbed": "="}
    for row in _limited(rows, MAX_PULLS, everything):
        title = f"  {row['title']}" if row["title"] else ""
        yield f"  {marks[row['change']]} {row['component']} #{row['number']} {row['change']}{title}"
        reach = reach_line(row)
        if reach:
            yield f"      reaches {reach}"
        if everything and row["files"]:
            yield from (f"      {path}" for path in row["files"])
            yield from (f"      {name}" for name in (row["units"] or {}).get("reached", ()))
            yield from (f"      {name}" for name in row["kernel_names"])
    yield from _left(rows, MAX_PULLS, everything, "pull requests")


def reach_line(row: Doc) -> str:
    """What a pull request reaches, in a few words; empty where nothing is known of it."""
    if row["tree_unchanged"]:
        return "nothing: the tree is the same"
    parts = [] if row["files"] is None else [plural(len(row["files"]), "file")]
    if row["derivations"] is not None:
        parts.append(plural(row["derivations"], "derivation"))
    if row["units"] is not None:
        parts.append(f"{len(row['units']['reached'])} of {plural(row['units']['of'], 'unit')}")
    if row["kernels"] is not None:
        parts.append(plural(row["kernels"], "kernel"))
    if row["layers"] is not None:
        parts.append(f"{plural(len(row['layers']), 'layer')} of {size(row['bytes'])}")
    if row["labels"]:
        parts.append(plural(len(row["labels"]), "label"))
    return ", ".join(parts)


def _levels(doc: Doc, everything: bool) -> Iterator[str]:
    yield ""
    changed = {n: c for n, c in doc["components"].items() if c["status"] != "kept"}
    kept = len(doc["components"]) - len(changed)
    words = f"{plural(len(changed), 'component')} changed, {kept} kept"
    yield f"components   {words}"
    shown = list(changed.items())
    for name, component in _limited(shown, MAX_ROWS, everything):
        yield from _folded(f"  {name:<18} ", _component(component))
    yield from _left(shown, MAX_ROWS, everything, "components")
    packages = [(i, n, p) for i, rows in doc["inputs"].items() for n, p in rows.items()]
    if packages:
        yield f"dependencies {plural(len(packages), 'package')} changed"
        for row in _limited(packages, MAX_ROWS, everything):
            yield "  " + _package(*row)
        yield from _left(packages, MAX_ROWS, everything, "packages")
    yield from _derivations(doc["derivations"], everything)
    yield from _kernels(doc["kernels"], everything)
    yield from _layers(doc["layers"])
    yield from _texts(doc, everything)


def short(text: str) -> str:
    """A digest's first digits; any other text as it is."""
    bare = text.removeprefix("blake3:").removeprefix("sha256:")
    return bare[:12] if re.fullmatch(r"[0-9a-f]{40,64}", bare) else text


def _package(input_name: str, name: str, row: Doc) -> str:
    old, new = (short(row[key] or "") for key in ("old", "new"))
    if not old:
        text = f"+ {new}"
    elif not new:
        text = f"− {old}"
    elif old == new:
        text = f"{new}, other bytes"
    else:
        text = f"{old} → {new}"
    tool = "  (toolchain)" if row["toolchain"] else ""
    return f"{name:<28} {text}  [{input_name}]{tool}"


def _component(row: Doc) -> str:
    if row["status"] in ("added", "dropped"):
        return str(row["status"])
    heads, base, parts = row["heads"], row["base"], []
    if base["moved"] and base["old"] and base["new"]:
        count = "" if base["commits"] is None else f", {plural(base['commits'], 'commit')}"
        parts.append(f"base {base['old'][:10]} → {base['new'][:10]}{count}")
    for key in ("added", "dropped", "moved", "absorbed", "reordered"):
        if heads[key]:
            parts.append(f"{plural(len(heads[key]), 'head')} {key}")
    if row["version"]["equal"] is False:
        parts.append(f"version {row['version']['old']} → {row['version']['new']}")
    if row["tree"]["equal"]:
        parts.append("same source tree")
    files = row["files"]
    if files["changed"]:
        parts.append(plural(len(files["changed"]) + files["more"], "source file"))
    if files["note"]:
        parts.append(files["note"])
    output = row["output"]
    if output["verdict"] == "identical" and row["drv"]["equal"] is False:
        parts.append("output identical although the derivation changed")
    elif output["files"]:
        parts.append(plural(output["files_changed"], "output file"))
    return ", ".join(parts) or "another recipe"


def _derivations(row: Doc, everything: bool) -> Iterator[str]:
    if not row["compared"]:
        yield f"derivations  not compared: {row['note']}"
        return
    equal = "" if row["equal"] is None else f", {row['equal']} equal"
    outputs = row["outputs"]
    parts = [f"{outputs[k]} {w}" for k, w in (
        ("changed", "came out differently"), ("identical", "came out identical"),
        ("not-reproducible", "NOT REPRODUCIBLE"), ("unknown", "not made here"),
    ) if outputs[k]]  # fmt: skip
    yield f"derivations  {row['changed']} differ{equal}" + (
        f": {', '.join(parts)}" if parts else ""
    )
    if everything:
        for item in row["list"]:
            yield f"  {item['kind']:<9} {item['name']}  {item['output']}"
            for change in item["fields"]:
                yield f"      {change['field']}: {change.get('old')!r} → {change.get('new')!r}"


def _kernels(row: Doc, everything: bool) -> Iterator[str]:
    if not row["compared"]:
        yield f"kernels      {row['note'].removeprefix('kernels were ')}"
        return
    counts = row["counts"]
    modules = row["modules"]
    if not modules:
        yield "kernels      none changed"
        return
    told = ", ".join(f"{counts[k]} {k}" for k in ("added", "removed", "changed") if counts[k])
    yield f"kernels      {told or 'other architectures'} in {plural(len(modules), 'module')}"
    rows = [line for path, module in modules.items() for line in _module(path, module)]
    for line in _limited(rows, MAX_ROWS, everything):
        yield "  " + line
    yield from _left(rows, MAX_ROWS, everything, "kernels")


def _module(path: str, row: Doc) -> Iterator[str]:
    for arch in row["archs_lost"]:
        yield f"{path}: lost {arch}"
    for arch in row["archs_gained"]:
        yield f"{path}: gained {arch}"
    for mark, key in (("−", "removed"), ("+", "added")):
        for name in row[key]:
            yield f"{mark} {name}  [{path}]"
    for kernel in row["changed"]:
        told = [
            f"{k.replace('_', ' ')} {kernel[k]['old']} → {kernel[k]['new']}"
            for k in ("registers", "spills", "shared", "code_size")
            if k in kernel
        ]
        yield f"~ {kernel['kernel']}  {', '.join(told) or 'other code'}  [{path}]"


def _layers(row: Doc) -> Iterator[str]:
    if not row["compared"]:
        if row["note"]:
            yield f"layers       {row['note'].removeprefix('layers were ')}"
        return
    changed = row["changed"]
    unpacked = row["bytes_uncompressed"]
    more = f" ({size(unpacked)} unpacked)" if unpacked is not None else ""
    yield (
        f"layers       {len(row['kept'])} kept, {len(changed)} changed, "
        f"{len(row['dropped'])} dropped; to pull {size(row['bytes_to_pull'])}{more}"
    )
    names = [f"{la['component'] or 'base'} {size(la['size'])}" for la in changed]
    if names:
        yield "  " + ", ".join(names[:8]) + (f", and {len(names) - 8} more" if names[8:] else "")


def _texts(doc: Doc, everything: bool) -> Iterator[str]:
    for name in ("environment", "serving"):
        rows = doc[name]
        if rows:
            yield f"{name:<12} {plural(len(rows), 'entry')} changed"
            items = list(rows.items())
            for key, pair in _limited(items, MAX_ROWS, everything):
                yield f"  {key}: {pair['old']!r} → {pair['new']!r}"
    labels = doc["labels"]
    if labels:
        yield f"labels       {plural(len(labels), 'label')} changed"
        if everything:
            yield from (f"  {k}: {p['old']} → {p['new']}" for k, p in labels.items())
    if doc["documents"]:
        yield f"documents    {', '.join(doc['documents'])} say something else now"


def _notes(doc: Doc) -> Iterator[str]:
    for note in doc["notes"][:5]:
        yield f"note: {note}"
    if len(doc["notes"]) > 5:
        yield f"note: and {len(doc['notes']) - 5} more notes (--json has them)"
