"""The changelog of a release, and of several in a row, out of comparisons of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reprobuild.core.diff.markdown import code, escape
from reprobuild.core.wording import plural, size

Doc = Mapping[str, Any]


def changelog(docs: Sequence[Doc]) -> str:
    """Markdown, the newest release first; `docs` are the comparisons (report.py), oldest first."""
    lines = ["# Changelog", ""]
    for doc in reversed(docs):
        lines += _release(doc)
    return "\n".join(lines).rstrip() + "\n"


def changelog_document(docs: Sequence[Doc]) -> dict[str, Any]:
    """The same as data, newest first."""
    return {
        "releases": [
            {
                "causes": [cause["title"] for cause in doc["causes"]],
                "from": doc["old"]["name"],
                "layers": doc["layers"]["bytes_to_pull"],
                "name": doc["new"]["name"],
                "pull_requests": [
                    {k: row[k] for k in ("change", "component", "head", "number", "title")}
                    for row in doc["pull_requests"]
                ],
                "reference": doc["new"]["reference"],
            }
            for doc in reversed(docs)
        ]
    }


def _title(name: str) -> str:
    """A side's name without the way to it."""
    kind, colon, rest = name.partition(":")
    return rest.rstrip("/").rpartition("/")[2] if colon and kind == "file" else name


_SECTIONS = (
    ("added", "Added"),
    ("moved", "Updated"),
    ("absorbed", "Now part of the base"),
    ("dropped", "Removed"),
)


def _release(doc: Doc) -> Iterator[str]:
    side = doc["new"]
    yield f"## {escape(_title(side['name']))}"
    yield ""
    if side["reference"]:
        yield f"{code(side['reference'])}, compared with {code(doc['old']['name'])}"
        yield ""
    if doc["equal"]:
        yield "Nothing changed."
        yield ""
        return
    for change, title in _SECTIONS:
        rows = [row for row in doc["pull_requests"] if row["change"] == change]
        if not rows:
            continue
        yield f"### {title}"
        yield ""
        for row in rows:
            what = escape(f"{row['component']} #{row['number']}")
            title_text = f" {escape(row['title'])}" if row["title"] else ""
            yield f"- {what}{title_text} ({code(row['head'][:12])})"
        yield ""
    yield from _others(doc)


def _others(doc: Doc) -> Iterator[str]:
    lines: list[str] = []
    for name, row in doc["components"].items():
        base = row["base"]
        if base["moved"] and base["old"] and base["new"]:
            count = "" if base["commits"] is None else f", {plural(base['commits'], 'commit')}"
            lines.append(
                f"- {escape(name)}: base {code(base['old'][:12])} → {code(base['new'][:12])}{count}"
            )
        if row["heads"]["reordered"]:
            numbers = ", ".join(f"\\#{n}" for n in row["heads"]["reordered"])
            lines.append(f"- {escape(name)}: {numbers} in another order")
        if row["status"] in ("added", "dropped"):
            lines.append(f"- component {escape(name)} {row['status']}")
    told = {"source", "component", "release"}
    lines += [f"- {escape(c['title'])}" for c in doc["causes"] if c["kind"] not in told]
    kernels = doc["kernels"]
    if kernels["compared"] and kernels["modules"]:
        counts = kernels["counts"]
        words = [f"{counts[k]} {k}" for k in ("added", "removed", "changed") if counts[k]]
        lines.append(f"- kernels: {', '.join(words) or 'other architectures'}")
    if doc["layers"]["compared"] and doc["layers"]["changed"]:
        lines.append(
            f"- {size(doc['layers']['bytes_to_pull'])} to pull in "
            f"{plural(len(doc['layers']['changed']), 'layer')}"
        )
    for row in doc["not_reproducible"]:
        lines.append(f"- **not reproducible**: {code(row['derivation'])}")
    if lines:
        yield "### Otherwise"
        yield ""
        yield from lines
        yield ""
