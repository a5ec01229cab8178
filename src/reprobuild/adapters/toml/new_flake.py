"""A first flake-like.toml, and its component files, out of imported sources."""

from __future__ import annotations

from typing import Any

from tomlkit import aot, array, comment, document, inline_table, nl, table
from tomlkit.items import Table

from reprobuild.core.files import FLAKE_FILE, component_file
from reprobuild.core.integration.imported import Imported, ImportedRelease, ImportedSource
from reprobuild.core.integration.model import Strategy

_EXAMPLE = """\
[inputs.app]
kind = "git"
url = "https://git.example.org/app.git"
ref = "refs/heads/main"

[outputs.demo]
components = ["app"]

[outputs.demo.sources.app]
input = "app"
heads = [{ number = 1 }]
"""
"""What an empty flake shows of the language; derivations/app.toml goes with it."""


def render_flake(imported: Imported) -> str:
    """The text of a flake with one output that has all the sources."""
    out = document()
    out.add(comment("What is wanted. Written by `reprobuild init`; docs/language.md of reprobuild"))
    out.add(comment("describes the language."))
    for note in imported.notes:
        out.add(comment(note))
    out.add(nl())
    out.add("format", 0)
    if imported.sources:
        out.add("default", imported.output)
        out.add(nl())
        inputs = table(is_super_table=True)
        for source in imported.sources:
            one = table()
            one.add("kind", "git")
            one.add("url", source.url)
            one.add("ref", source.ref)
            inputs.add(source.component, one)
        out.add("inputs", inputs)
    else:
        out.add(nl())
        out.add(
            comment("For a start, with another url: pull request 1 of a repository, merged onto")
        )
        out.add(
            comment("its main branch. derivations/app.toml then says what is made of it; at least")
        )
        out.add(comment('input = "app" and result = "source".'))
        out.add(comment(""))
        for line in _EXAMPLE.splitlines():
            out.add(comment(line))
    outputs = table(is_super_table=True)
    outputs.add(imported.output, _output(imported))
    if imported.sources:
        out.add("outputs", outputs)
    return out.as_string().rstrip("\n") + "\n"


def _output(imported: Imported) -> Table:
    out = table()
    components = array()
    components.extend([s.component for s in imported.sources])
    out.add("components", components)
    if imported.release is not None:
        out.add("release", _release(imported.release))
        out.add("image", table())
    sources = table(is_super_table=True)
    for source in imported.sources:
        sources.add(source.component, _source(source))
    out.add("sources", sources)
    return out


def _release(release: ImportedRelease) -> Table:
    out = table()
    out.add("codename", release.codename)
    out.add("revision", release.revision)
    out.add("date", release.date)
    out.add("title", release.title)
    out.add("repository", release.repository)
    out.add("tag", release.tag)
    return out


def _source(source: ImportedSource) -> Table:
    out = table()
    for note in source.notes:
        out.add(comment(note))
    out.add("input", source.component)
    if source.base is not None:
        out.add("base-commit", source.base.hex)
    elif source.tree is not None:
        out.add(comment("base-commit = to be found by `reprobuild lock`"))
    if source.strategy is not Strategy.MERGE:
        out.add("strategy", source.strategy.value)
    if source.composition is not None:
        out.add("composition-ref", source.composition_ref)
        out.add("composition-commit", source.composition.hex)
    if source.tree is not None:
        out.add("tree", source.tree.hex)
    _rows(out, "heads", [_head(source, index) for index in range(len(source.heads))])
    _rows(
        out,
        "patches",
        [
            {"path": p.path, "sha256": p.sha256.hex, **({"title": p.title} if p.title else {})}
            for p in source.patches
        ],
    )
    _rows(
        out,
        "exclusions",
        [
            {"number": e.number, "head": e.head.hex, "disposition": e.disposition,
             "reason": e.reason}
            for e in source.exclusions
        ],
    )  # fmt: skip
    return out


def _head(source: ImportedSource, index: int) -> dict[str, Any]:
    head = source.heads[index]
    row: dict[str, Any] = {"number": head.number, "head": head.head.hex}
    if head.title:
        row["title"] = head.title
    if head.ref:
        row["ref"] = head.ref
    if head.commits:
        row["commits"] = [c.hex for c in head.commits]
    if summary := source.summaries.get(head.number):
        row["summary"] = summary
    return row


def _rows(out: Table, key: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    tables = aot()
    for row in rows:
        one = table()
        for name, value in row.items():
            one.add(name, value)
        tables.append(one)
    out.add(key, tables)


def render_component(source: ImportedSource) -> str:
    """A component file that ships the integrated source as it is, to be filled in."""
    out = document()
    out.add(comment(f"How {source.component} is built: so far, not at all."))
    out.add("input", source.component)
    out.add("result", "source")
    out.add(nl())
    image = table()
    places = array()
    place = inline_table()
    place.add("from", "source")
    place.add("to", f"usr/src/{source.component}")
    places.append(place)
    image.add("place", places)
    out.add("image", image)
    return out.as_string().rstrip("\n") + "\n"


def new_files(imported: Imported) -> dict[str, str]:
    """A project's files by name, the flake first."""
    files = {FLAKE_FILE: render_flake(imported)}
    for source in imported.sources:
        files[component_file(source.component)] = render_component(source)
    return files
