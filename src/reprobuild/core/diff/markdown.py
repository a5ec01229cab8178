"""The report for a release note or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reprobuild.core.diff.text import inert, reach_line, short
from reprobuild.core.wording import plural, size

Doc = Mapping[str, Any]

MAX_ROWS = 40
MAX_PATHS = 12

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$@])")


def escape(text: str) -> str:
    """A foreign text as it is: no markup, no mention, no tag."""
    return _SPECIAL.sub(r"\\\1", inert(" ".join(text.split()))).replace("\\@", "@\u200b")


def code(text: str) -> str:
    """A foreign text as code, in one line."""
    text = inert(text)
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def cell(text: str) -> str:
    """A foreign text as code in a table, where a pipe needs a backslash even in code."""
    return code(text).replace("|", "\\|")


def render_markdown(doc: Doc, *, everything: bool = False) -> str:
    """The report of a document (report.py)."""
    return "\n".join(_lines(doc, everything)).rstrip() + "\n"


def _name(side: Doc) -> str:
    return str(side["reference"] or side["name"])


def _lines(doc: Doc, everything: bool) -> Iterator[str]:
    yield f"## What changed: {code(doc['old']['name'])} → {code(doc['new']['name'])}"
    yield ""
    for word, side in (("Old", doc["old"]), ("New", doc["new"])):
        yield f"- {word}: {code(_name(side))}"
    yield ""
    if doc["equal"]:
        yield "Nothing differs."
        return
    yield from _warnings(doc)
    yield "### Why"
    yield ""
    for cause in doc["causes"]:
        inherits = cause["inherits"]
        follows = f" – {plural(inherits, 'derivation')} follow{'s' * (inherits == 1)}" if inherits \
            else ""  # fmt: skip
        yield f"- **{cause['kind']}**: {escape(cause['title'])}{follows}"
    yield ""
    yield from _pulls(doc, everything)
    yield from _components(doc)
    yield from _packages(doc, everything)
    yield from _effects(doc, everything)
    yield from (f"> {escape(note)}" for note in doc["notes"])


def _warnings(doc: Doc) -> Iterator[str]:
    for row in doc["not_reproducible"]:
        yield f"> **Not reproducible:** {code(row['derivation'])}: one recipe gave different trees."
        yield ""
    for kind in ("kernel-lost", "downgrade", "isolation-weaker"):
        rows = doc["checks"][kind]
        if rows:
            more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
            yield f"> **{kind}:** {', '.join(escape(row) for row in rows[:5])}{more}"
            yield ""


def _pulls(doc: Doc, everything: bool) -> Iterator[str]:
    rows = doc["pull_requests"]
    if not rows:
        return
    yield "### Pull requests"
    yield ""
    yield "| | pull request | title | commit | reaches |"
    yield "| --- | --- | --- | --- | --- |"
    limit = len(rows) if everything else MAX_ROWS
    for row in rows[:limit]:
        what = f"{row['component']} #{row['number']}"
        yield (
            f"| {row['change']} | {escape(what)} | {escape(row['title'])} | "
            f"{cell(row['head'][:12])} | {escape(reach_line(row)) or '–'} |"
        )
    if len(rows) > limit:
        yield f"| … | {len(rows) - limit} more | | | |"
    yield ""
    for row in rows[:limit]:
        files = row["files"]
        if files:
            shown = files if everything else files[:MAX_PATHS]
            more = f" and {len(files) - len(shown)} more" if len(files) > len(shown) else ""
            yield (
                f"- {escape(row['component'])} #{row['number']}: "
                + ", ".join(code(path) for path in shown)
                + more
            )
    yield ""


def _components(doc: Doc) -> Iterator[str]:
    changed = {n: c for n, c in doc["components"].items() if c["status"] != "kept"}
    if not changed:
        return
    yield "### Components"
    yield ""
    yield "| component | | base | integration tree | version | output |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, row in changed.items():
        yield (
            f"| {escape(name)} | {row['status']} | {_pair(row['base'])} | {_pair(row['tree'])} "
            f"| {_pair(row['version'])} | {row['output']['verdict']} |"
        )
    yield ""


def _pair(row: Doc) -> str:
    old, new = row["old"], row["new"]
    if not old and not new:
        return "–"
    if old == new:
        return cell(short(new))
    return f"{cell(short(old or '')) or '–'} → {cell(short(new or '')) or '–'}"


def _packages(doc: Doc, everything: bool) -> Iterator[str]:
    rows = [(i, n, p) for i, packages in doc["inputs"].items() for n, p in packages.items()]
    if not rows:
        return
    yield "### Dependencies"
    yield ""
    yield "| package | old | new | input |"
    yield "| --- | --- | --- | --- |"
    limit = len(rows) if everything else MAX_ROWS
    for input_name, name, row in rows[:limit]:
        tool = " (toolchain)" if row["toolchain"] else ""
        cells = [cell(short(row[k])) if row[k] else "–" for k in ("old", "new")]
        yield f"| {escape(name)} | {cells[0]} | {cells[1]} | {escape(input_name)}{tool} |"
    if len(rows) > limit:
        yield f"| … {len(rows) - limit} more | | | |"
    yield ""


def _effects(doc: Doc, everything: bool) -> Iterator[str]:
    yield "### What it costs to take"
    yield ""
    layers = doc["layers"]
    if layers["compared"]:
        names = ", ".join(
            f"{escape(la['component'] or 'base')} ({size(la['size'])})" for la in layers["changed"]
        )
        pull = size(layers["bytes_to_pull"])
        yield f"- Layers: {len(layers['kept'])} kept, {len(layers['changed'])} changed" + (
            f" ({names}); {pull} to pull" if names else ""
        )
    elif layers["note"]:
        yield f"- {escape(layers['note'])}"
    derivations = doc["derivations"]
    if derivations["compared"]:
        yield f"- Derivations: {derivations['changed']} differ, {derivations['equal']} are equal"
        same = derivations["outputs"]["identical"]
        if same:
            yield f"- {plural(same, 'output')} identical although the derivation changed"
    yield from _kernels(doc["kernels"], everything)
    for name in ("environment", "serving"):
        for key, pair in doc[name].items():
            yield f"- {name}: {code(key)}: {_value(pair['old'])} → {_value(pair['new'])}"
    if doc["labels"]:
        yield f"- {plural(len(doc['labels']), 'label')} changed"
    if doc["documents"]:
        yield f"- Documents to write anew: {', '.join(doc['documents'])}"
    yield ""


def _value(value: object) -> str:
    if value is None:
        return "–"
    return code(value if isinstance(value, str) else str(value))


def _kernels(row: Doc, everything: bool) -> Iterator[str]:
    if not row["compared"]:
        yield f"- {escape(row['note'])}"
        return
    if not row["modules"]:
        yield "- Kernels: none changed"
        return
    counts = row["counts"]
    told = ", ".join(f"{counts[k]} {k}" for k in ("added", "removed", "changed") if counts[k])
    yield f"- Kernels: {told or 'other architectures'}"
    lines: list[str] = []
    for path, module in row["modules"].items():
        lines += [f"  - lost: {code(name)} in {code(path)}" for name in module["removed"]]
        lines += [f"  - {code(path)} lost {code(arch)}" for arch in module["archs_lost"]]
        lines += [f"  - new: {code(name)} in {code(path)}" for name in module["added"]]
        for kernel in module["changed"]:
            told = ", ".join(
                f"{k.replace('_', ' ')} {kernel[k]['old']} → {kernel[k]['new']}"
                for k in ("registers", "spills", "shared", "code_size")
                if k in kernel
            )
            lines.append(f"  - changed: {code(kernel['kernel'])}: {told or 'other code'}")
    limit = len(lines) if everything else MAX_ROWS
    yield from lines[:limit]
    if len(lines) > limit:
        yield f"  - … and {len(lines) - limit} more"
