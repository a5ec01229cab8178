"""diff: what changed between two release sides."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import wrote
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.cli.sides import Read
    from reprobuild.core.diff.comparison import Comparison
    from reprobuild.engine.diff_loaded import Loaded
    from reprobuild.engine.diff_reach import ReadsOf
    from reprobuild.engine.narrow import ReadSets

KINDS = ("new-root-cause", "non-reproducible", "kernel-lost", "downgrade", "isolation-weaker")


@click.command()
@click.argument("old")
@click.argument("new")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "html"]),
    help="The form of the report (default: text).",
)
@click.option("-o", "output", metavar="FILE", help="Write the report there.")
@click.option("--all", "everything", is_flag=True, help="Long lists to their end.")
@click.option("--fail-on", multiple=True, type=click.Choice(KINDS), help="Exit 9 when it happened.")
@click.pass_obj
def diff(
    app: App,
    /,
    old: str,
    new: str,
    form: str | None,
    output: str | None,
    everything: bool,
    fail_on: tuple[str, ...],
) -> None:
    """What changed from OLD to NEW, why, what it reaches and what it costs to take.

    A side is [FLAKEDIR#]OUTPUT[.COMPONENT], git:REV:INSTALLABLE, file:PATH (a release, bundle,
    image layout or published lock), docker:REF or registry:REF. Nothing is built, and no layer is
    fetched.
    """
    from reprobuild.cli.sides import read_side
    from reprobuild.core.diff.report import document
    from reprobuild.engine.diff import failed_checks

    if app.json and form not in (None, "json"):
        raise ReprobuildError("E-USAGE", f"--json and --format {form} exclude each other")
    if output is not None:
        app.check_text(Path(output), "-o")
    form = form or ("json" if app.json else "text")
    found = compare_sides(app, read_side(app, old), read_side(app, new), draw=form != "text")
    report = document(found, everything=everything)
    failed = failed_checks(report, fail_on)
    text = render(app, report, form, everything=everything)
    if output is not None:
        app.world.write(Path(output), text)
        wrote(app, output)
        if app.json and not failed:
            click.echo(text, nl=False)
    elif not (app.json and failed):
        _print(text)
    if failed:
        kinds = ", ".join(failed)
        raise ReprobuildError(
            "E-DIFF-CHECK",
            f"between {old} and {new}: {kinds}",
            failed=list(failed),
            found=[f"{kind}: {row}" for kind, rows in failed.items() for row in rows[:20]],
        )


def compare_sides(app: App, old: Read, new: Read, *, draw: bool = True) -> Comparison:
    """The comparison of two sides that were read."""
    from reprobuild.engine.diff import Differ

    world = app.world
    stores = {id(s): s for s in (old.store, new.store) if s is not None}
    return Differ(
        old.loaded,
        new.loaded,
        world.together(old.sources, new.sources),
        (old.patches, new.patches),
        world.kernels(list(stores.values())),
        world.version_order,
        reads_of(app),
        draw,
    ).run()


def reads_of(app: App) -> ReadsOf:
    """Says what compiles could read, out of the store of a side."""

    def made(side: Loaded) -> ReadSets | None:
        from reprobuild.engine.narrow import ReadSets

        return ReadSets(side.store, app.world.scans()) if side.store is not None else None

    return made


def render(app: App, report: dict[str, Any], form: str, *, everything: bool) -> str:
    """A report's document in one of the formats."""
    if form == "json":
        return json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if form == "markdown":
        from reprobuild.core.diff.markdown import render_markdown

        return render_markdown(report, everything=everything)
    if form == "html":
        return app.world.html(report)
    from reprobuild.core.diff.text import render_text

    return render_text(report, everything=everything)


def _print(text: str) -> None:
    """Bytes as they are meant: what is no UTF-8 outside stays escaped, never a crash."""
    stream = sys.stdout
    encoding = stream.encoding or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False)
