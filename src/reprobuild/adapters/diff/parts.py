"""Pieces of the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any

from reprobuild.core.diff.text import reach_line, short
from reprobuild.core.wording import plural, size

Doc = Mapping[str, Any]


def tag(kind: str, text: str | None = None) -> str:
    """A word in a frame."""
    return f'<span class="tag {escape(kind)}">{escape(text or kind)}</span>'


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """A list of names and values; what is None or empty is left out."""
    inner = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(str(value))}</code></dd>"
        for name, value in rows
        if value not in (None, "", [])
    )
    return f'<dl class="facts">{inner}</dl>\n' if inner else ""


def anchor(component_name: str, path: str) -> str:
    """The id of a changed source file's place on the page."""
    return "file-" + sha256(f"{component_name}\0{path}".encode()).hexdigest()[:12]


def pull(row: Doc, doc: Doc) -> str:
    """A pull request and what it reaches, level by level."""
    head = (
        f"{tag(row['change'])} <strong>{escape(row['component'])} #{row['number']}</strong> "
        f"{escape(row['title'])}"
    )
    told = reach_line(row)
    if told:
        head += f' <span class="dim">reaches {escape(told)}</span>'
    others = ", ".join(f"#{n}" for n in row["shared_with"])
    inner = facts(
        [
            ("commit", row["head"]),
            ("components", ", ".join(row["components"])),
            ("layers", ", ".join(row["layers"] or ())),
            ("documents", ", ".join(row["documents"])),
            ("labels", ", ".join(row["labels"])),
            ("together with", others),
        ]
    )
    inner += _listed("Files", [_link(row["component"], path, doc) for path in row["files"] or ()])
    units = row["units"] or {"reached": [], "of": 0}
    names = [f"<code>{escape(name)}</code>" for name in units["reached"]]
    inner += _listed(f"Compiles that read them, of {units['of']}", names)
    kernels = [f"<code>{escape(name)}</code>" for name in row["kernel_names"]]
    left = (row["kernels"] or 0) - len(kernels)
    more = [f"and {left} more"] if kernels and left > 0 else []
    inner += _listed("Kernels", kernels + more)
    return f"<li data-row><details><summary>{head}</summary>{inner}</details></li>\n"


def _listed(title: str, rows: Sequence[str]) -> str:
    inner = "".join(f"<li>{row}</li>" for row in rows)
    return f"<h3>{title}</h3><ul>{inner}</ul>" if inner else ""


def _link(name: str, path: str, doc: Doc) -> str:
    """A file's path, leading to its hunks where they are on the page."""
    changed = doc["components"].get(name, {}).get("files", {}).get("changed") or ()
    text = f"<code>{escape(path)}</code>"
    if any(file["path"] == path for file in changed):
        return f'<a href="#{anchor(name, path)}">{text}</a>'
    return text


def component(name: str, row: Doc) -> str:
    """A component: base, heads, dependencies, files with hunks, output."""
    base, heads, output = row["base"], row["heads"], row["output"]
    verdict = ""
    if output["verdict"] != "unknown":
        verdict = tag(output["verdict"], f"output {output['verdict']}")
    parts = [plural(len(heads[k]), "head") + f" {k}" for k in
             ("added", "dropped", "moved", "absorbed", "reordered") if heads[k]]  # fmt: skip
    head = f"{tag(row['status'])} <strong>{escape(name)}</strong> {', '.join(parts)} {verdict}"
    inner = facts(
        [
            ("base", _arrow(base)),
            ("commits between", base["commits"]),
            ("integration tree", _arrow(row["tree"])),
            ("version", _arrow(row["version"])),
            ("patch", _arrow(row["patch"]["sha256"])),
            ("drv", _arrow(row["drv"])),
            ("output", _arrow(output)),
        ]
    )
    inner += _heads(heads)
    if base["subjects"]:
        lines = "".join(f"<li><code>{escape(line)}</code></li>" for line in base["subjects"])
        inner += f"<h3>Commits of the base</h3><ul>{lines}</ul>"
    inner += _files(name, row["files"])
    if output["files"]:
        lines = "".join(
            f"<li>{tag(f['status'])} <code>{escape(f['path'])}</code></li>" for f in output["files"]
        )
        inner += (
            f"<details><summary>{plural(output['files_changed'], 'file')} of the output"
            f"</summary><ul>{lines}</ul></details>"
        )
    return f"<li data-row><details><summary>{head}</summary>{inner}</details></li>\n"


def _arrow(row: Doc) -> str | None:
    old, new = row["old"], row["new"]
    if old == new:
        return str(new) if new else None
    return f"{old or '–'} → {new or '–'}"


def _heads(heads: Doc) -> str:
    lines = [
        f"<li>{tag(kind)} #{row['number']} {escape(row['title'])} <code>{escape(row['head'])}"
        "</code></li>"
        for kind in ("added", "dropped", "absorbed")
        for row in heads[kind]
    ]
    lines += [
        f"<li>{tag('moved')} #{row['number']} {escape(row['title'])} <code>{escape(row['old'])} → "
        f"{escape(row['new'])}</code></li>"
        for row in heads["moved"]
    ]
    if heads["reordered"]:
        numbers = ", ".join(f"#{n}" for n in heads["reordered"])
        lines.append(f"<li>{tag('moved', 'reordered')} {numbers}</li>")
    return f"<h3>Heads</h3><ul>{''.join(lines)}</ul>" if lines else ""


def _files(name: str, row: Doc) -> str:
    note = f'<p class="dim">{escape(row["note"])}</p>' if row["note"] else ""
    if not row["changed"]:
        return note
    more = f"<p>{row['more']} more files: <code>--all</code></p>" if row["more"] else ""
    return "<h3>Source files</h3>" + note + "".join(_file(name, f) for f in row["changed"]) + more


def _file(name: str, row: Doc) -> str:
    heads = ", ".join(f"#{n}" for n in row["heads"]) or "base"
    head = (
        f"{tag(row['status'])} <code>{escape(row['path'])}</code> "
        f'<span class="dim">+{row["added"]} −{row["removed"]}, from {heads}</span>'
    )
    hunks, place = row["hunks"], anchor(name, row["path"])
    if not hunks:
        note = row.get("note") or "no text to show"
        return f'<p id="{place}">{head} <span class="dim">{escape(note)}</span></p>'
    inner = "".join(map(_hunk, hunks))
    return f'<details id="{place}"><summary>{head}</summary>{inner}</details>'


_CLASSES = {"+": "a", "-": "r"}


def _hunk(row: Doc) -> str:
    origin = ", ".join(f"#{n}" for n in row["heads"]) or "base"
    place = f"@@ -{row['old_start']},{row['old_lines']} +{row['new_start']},{row['new_lines']} @@"
    lines = "".join(
        f'<span class="{_CLASSES.get(line[:1], "c")}">{escape(line) or " "}</span>'
        for line in row["lines"]
    )
    label = escape(f"hunk {place}", quote=True)
    return (
        f'<pre class="hunk" tabindex="0" aria-label="{label}">'
        f'<span class="h">{escape(place)} from {origin}</span>{lines}</pre>'
    )


def kernel_rows(row: Doc) -> Iterator[str]:
    """Modules whose device code changed."""
    for path, module in row["modules"].items():
        lines = [f"<li>{tag('removed', 'lost')} {escape(a)}</li>" for a in module["archs_lost"]]
        lines += [f"<li>{tag('added', 'gained')} {escape(a)}</li>" for a in module["archs_gained"]]
        for key in ("removed", "added"):
            lines += [f"<li>{tag(key)} <code>{escape(n)}</code></li>" for n in module[key]]
        for kernel in module["changed"]:
            told = ", ".join(
                f"{k.replace('_', ' ')} {kernel[k]['old']} → {kernel[k]['new']}"
                for k in ("registers", "spills", "shared", "code_size")
                if k in kernel
            )
            lines.append(
                f"<li>{tag('changed')} <code>{escape(kernel['kernel'])}</code> "
                f"{escape(told or 'other code')}</li>"
            )
        moved = len(module["added"]) + len(module["removed"]) + len(module["changed"])
        head = (
            f"{tag(module['module'])} <code>{escape(path)}</code> "
            f'<span class="dim">{plural(moved, "kernel")} of {moved + module["kept"]}</span>'
        )
        yield (
            f"<li data-row><details><summary>{head}</summary><ul>{''.join(lines)}</ul>"
            "</details></li>\n"
        )


def layer_table(row: Doc) -> str:
    """Layers that changed, with what they were; those that went; those that are kept, folded."""
    before = {layer["component"]: layer for layer in reversed(row["dropped"])}
    lines, told = [], set()
    for layer in row["changed"]:
        old = before.get(layer["component"])
        told.add(id(old))
        lines.append(_layer("changed" if old is not None else "added", old, layer))
    lines += [_layer("dropped", old, None) for old in row["dropped"] if id(old) not in told]
    kept = "".join(_layer("kept", layer, layer) for layer in row["kept"])
    out = _layers("Layers", "".join(lines)) if lines else ""
    if kept:
        title = plural(len(row["kept"]), "layer")
        out += f"<details><summary>{title} kept</summary>{_layers('Kept layers', kept)}</details>\n"
    return out


def _layers(label: str, lines: str) -> str:
    head = '<tr><th>layer</th><th>component</th><th class="num">size</th><th>digest</th></tr>'
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>\n'
        f"<thead>{head}</thead><tbody>{lines}</tbody></table></div>\n"
    )


def _layer(state: str, old: Doc | None, new: Doc | None) -> str:
    sides = [side for side in (old, new) if side is not None]
    if old is new:
        sides = sides[:1]
    sizes = [size(s["size"]) if s["size"] is not None else "–" for s in sides]
    names = [short(s["digest"] or s["diff_id"] or "") for s in sides]
    component_name = sides[-1]["component"] or "base"
    return (
        f"<tr data-row><td>{tag(state)}</td><td>{escape(component_name)}</td>"
        f'<td class="num">{" → ".join(dict.fromkeys(sizes))}</td>'
        f'<td><code title="{escape(sides[-1]["digest"] or "")}">{escape(" → ".join(names))}</code>'
        "</td></tr>\n"
    )


def pair_table(title: str, rows: Doc) -> str:
    """Names with their old and new values."""
    lines = "".join(
        f"<tr data-row><td><code>{escape(name)}</code></td><td><code>{_shown(pair['old'])}</code>"
        f"</td><td><code>{_shown(pair['new'])}</code></td></tr>\n"
        for name, pair in rows.items()
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}"><table>\n'
        f"<thead><tr><th>name</th><th>old</th><th>new</th></tr></thead><tbody>{lines}"
        "</tbody></table></div>\n"
    )


def _shown(value: object) -> str:
    return "–" if value is None else escape(str(value))
