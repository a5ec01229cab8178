"""The report as one page that needs nothing else: no network, no script of anybody's.

What is foreign (titles, paths, code) is only ever text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from reprobuild.adapters.diff.drawing import drawing
from reprobuild.adapters.diff.frame import frame
from reprobuild.adapters.diff.parts import (
    component,
    facts,
    kernel_rows,
    layer_table,
    pair_table,
    pull,
    tag,
)
from reprobuild.core.wording import plural, size

Doc = Mapping[str, Any]


def render_page(doc: Doc) -> str:
    """The page for a document (core/diff/report.py)."""
    title = f"{doc['old']['name']} → {doc['new']['name']} – what changed"
    return frame(title, "".join(_head(doc)), "".join(_body(doc)), skip="Skip to the report")


def _head(doc: Doc) -> Iterator[str]:
    yield "<header>\n<h1>What changed</h1>\n"
    for word, side in (("Old", doc["old"]), ("New", doc["new"])):
        reference = f" <code>{escape(side['reference'])}</code>" if side["reference"] else ""
        yield f'<p class="sides">{word}: <strong>{escape(side["name"])}</strong>{reference}</p>\n'
    yield "</header>\n"


def _body(doc: Doc) -> Iterator[str]:
    if doc["equal"]:
        yield "<p>Nothing differs.</p>\n"
        return
    yield from _warnings(doc)
    yield from _cards(doc)
    yield from _causes(doc)
    yield from _section("Pull requests", [pull(row, doc) for row in doc["pull_requests"]])
    changed = {n: c for n, c in doc["components"].items() if c["status"] != "kept"}
    kept = sorted(set(doc["components"]) - set(changed))
    rows = [component(name, row) for name, row in changed.items()]
    tail = f'<p class="dim">Kept as they were: {escape(", ".join(kept))}</p>\n' if kept else ""
    yield from _section("Components", rows, tail)
    yield from _packages(doc)
    yield from _derivations(doc)
    yield from _kernels(doc)
    yield from _layers(doc)
    for title, key in (
        ("Environment", "environment"),
        ("Serving defaults", "serving"),
        ("Release facts", "release"),
        ("Labels", "labels"),
    ):
        if doc[key]:
            table = pair_table(title, doc[key])
            yield f'<section id="{key}">\n<h2>{title}</h2>\n{table}</section>\n'
    yield from _documents(doc)


def _section(title: str, rows: list[str], tail: str = "") -> Iterator[str]:
    if rows or tail:
        name = title.lower().replace(" ", "-")
        yield f'<section id="{name}">\n<h2>{title}</h2>\n'
        if rows:
            yield '<ul class="rows">\n' + "".join(rows) + "</ul>\n"
        yield tail + "</section>\n"


def _warnings(doc: Doc) -> Iterator[str]:
    for row in doc["not_reproducible"]:
        trees = row["conflict"] or [row["old"], row["new"]]
        shown = ", ".join(f"<code>{escape(str(tree))}</code>" for tree in trees)
        yield (
            f'<p class="warn"><strong>Not reproducible: {escape(row["derivation"])}</strong><br>'
            f"One recipe gave different trees: {shown}</p>\n"
        )
    for kind, title in (
        ("kernel-lost", "Kernels were lost"),
        ("downgrade", "Something went back"),
        ("isolation-weaker", "Isolation is weaker"),
    ):
        rows = doc["checks"][kind]
        if rows:
            more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
            shown = "; ".join(escape(row) for row in rows[:8])
            yield f'<p class="warn"><strong>{title}:</strong> {shown}{more}</p>\n'


def _cards(doc: Doc) -> Iterator[str]:
    changed = sum(c["status"] != "kept" for c in doc["components"].values())
    layers, derivations, kernels = doc["layers"], doc["derivations"], doc["kernels"]
    cards = [
        ("Root causes", str(len(doc["causes"])), "why it is another release", "why"),
        ("Components", str(changed), f"of {len(doc['components'])} changed", "components"),
        ("Pull requests", str(len(doc["pull_requests"])), "came, went or moved", "pull-requests"),
    ]
    if derivations["compared"]:
        same = derivations["outputs"]["identical"]
        note = f"{derivations['equal']} equal" + (f", {same} came out identical" if same else "")
        cards.append(("Derivations", str(derivations["changed"]), note, "derivations"))
    if kernels["compared"]:
        counts = kernels["counts"]
        moved = counts["added"] + counts["removed"] + counts["changed"]
        note = f"came, went or changed, {counts['kept']} kept"
        cards.append(("Kernels", str(moved), note if moved else "none changed", "kernels"))
    if layers["compared"]:
        pull_size = size(layers["bytes_to_pull"])
        note = f"{plural(len(layers['kept']), 'layer')} kept"
        cards.append(("To pull", pull_size, note, "layers"))
    yield '<nav aria-label="Overview"><ul class="cards">\n'
    for title, value, note, place in cards:
        inner = f"<strong>{escape(value)}</strong><small>{escape(note)}</small>"
        here = value not in ("0", "0 B")
        inner = f'<a href="#{place}">{title}{inner}</a>' if here else f"<p>{title}{inner}</p>"
        yield f"<li>{inner}</li>\n"
    yield "</ul></nav>\n"


def _causes(doc: Doc) -> Iterator[str]:
    rows = []
    for cause in doc["causes"]:
        follows = ""
        if cause["inherits"]:
            follows = f' <span class="dim">{plural(cause["inherits"], "derivation")} follow</span>'
        head = f"{tag('root', cause['kind'])} {escape(cause['title'])}{follows}"
        inner = "".join(f"<li>{escape(line)}</li>" for line in cause["details"])
        lists = f"<ul>{inner}</ul>" if inner else ""
        fields = "".join(
            facts([("field", row["field"]), ("old", row.get("old")), ("new", row.get("new"))])
            for row in cause["fields"]
        )
        reach = cause["reaches"]
        told = facts(
            [
                ("components", ", ".join(reach["components"])),
                ("derivations", reach["derivations"]),
                ("kernels", reach["kernels"]),
                ("layers", ", ".join(reach["layers"] or ())),
                ("bytes", size(reach["bytes"]) if reach["layers"] else None),
            ]
        )
        rows.append(
            f"<li data-row><details><summary>{head}</summary>{lists}{fields}<h3>Reaches</h3>{told}"
            "</details></li>\n"
        )
    yield from _section("Why", rows)


def _packages(doc: Doc) -> Iterator[str]:
    rows = [
        f"<tr data-row><td>{escape(name)}</td><td>{escape(row['old'] or '–')}</td>"
        f"<td>{escape(row['new'] or '–')}</td><td>{escape(source)}"
        f"{' (toolchain)' if row['toolchain'] else ''}</td></tr>\n"
        for source, packages in doc["inputs"].items()
        for name, row in packages.items()
    ]
    if rows:
        head = "<tr><th>package</th><th>old</th><th>new</th><th>input</th></tr>\n"
        yield '<section id="dependencies">\n<h2>Dependencies</h2>\n'
        yield '<div class="scroll" tabindex="0" role="region" aria-label="Dependencies"><table>\n'
        yield f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div></section>\n"


def _derivations(doc: Doc) -> Iterator[str]:
    row = doc["derivations"]
    if not row["compared"]:
        return
    yield '<section id="derivations">\n<h2>Derivations</h2>\n'
    if doc["graph"]:
        yield (
            '<p class="dim">Inputs on the left, the image on the right. A thick frame is a root '
            "cause, a dashed one inherits. Choosing a box filters the page.</p>\n"
            '<div class="scroll" tabindex="0" role="region" aria-label="Graph of derivations">\n'
        )
        yield drawing(doc["graph"]) + "</div>\n"
    items = []
    for item in row["list"]:
        head = f"{tag(item['kind'])} <code>{escape(item['name'])}</code> {tag(item['output'])}"
        inner = facts(
            [("old drv", item["old"]), ("new drv", item["new"])]
            + [(f["field"], f"{f.get('old')!r} → {f.get('new')!r}") for f in item["fields"]]
        )
        items.append(f"<li data-row><details><summary>{head}</summary>{inner}</details></li>\n")
    yield f"<details><summary>{plural(len(items), 'derivation')} that differ</summary>\n"
    yield '<ul class="rows">' + "".join(items) + "</ul></details>\n"
    if row["more"]:
        yield f"<p>{row['more']} more: <code>--all</code></p>\n"
    yield "</section>\n"


def _kernels(doc: Doc) -> Iterator[str]:
    row = doc["kernels"]
    if not row["compared"] or row["note"]:
        note = f'<p class="dim">{escape(row["note"])}</p>\n'
    else:
        note = ""
    yield from _section("Kernels", list(kernel_rows(row)), note)


def _layers(doc: Doc) -> Iterator[str]:
    row = doc["layers"]
    if row["compared"]:
        unpacked = row["bytes_uncompressed"]
        more = f" ({size(unpacked)} unpacked)" if unpacked is not None else ""
        yield (
            f'<section id="layers">\n<h2>Layers</h2>\n<p>{len(row["kept"])} kept, '
            f"{len(row['changed'])} changed, {len(row['dropped'])} dropped; "
            f"{size(row['bytes_to_pull'])} to pull{more}.</p>\n{layer_table(row)}</section>\n"
        )
    elif row["note"]:
        note = f'<p class="dim">{escape(row["note"])}</p>'
        yield f'<section id="layers"><h2>Layers</h2>{note}</section>\n'


def _documents(doc: Doc) -> Iterator[str]:
    rows = [
        f"<li data-row><p><strong>{escape(name)}</strong>: {escape(why)}</p></li>\n"
        for name, why in doc["documents"].items()
    ]
    notes = "".join(f'<p class="dim">{escape(note)}</p>\n' for note in doc["notes"])
    yield from _section("Documents that say something else now", rows, notes)
