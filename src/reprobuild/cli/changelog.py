"""release changelog: what changed from release to release."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@click.argument("sides", nargs=-1, required=True)
@click.option("-o", "output", metavar="FILE", help="Write it there.")
@click.pass_obj
def changelog(app: App, /, sides: tuple[str, ...], output: str | None) -> None:
    """The changelog of releases in a row: SIDES from the oldest to the newest, as for `diff`."""
    from reprobuild.cli.diff import compare_sides
    from reprobuild.cli.sides import read_side
    from reprobuild.core.diff.changelog import changelog as written
    from reprobuild.core.diff.changelog import changelog_document
    from reprobuild.core.diff.report import document

    if len(sides) < 2:
        raise ReprobuildError("E-USAGE", "a changelog needs two releases or more, oldest first")
    read = [read_side(app, side) for side in sides]
    docs = [document(compare_sides(app, old, new, draw=False)) for old, new in pairwise(read)]
    text = written(docs)
    if app.json:
        text = json.dumps(changelog_document(docs), indent=2, sort_keys=True) + "\n"
    if output is not None:
        app.world.write(Path(output), text)
    else:
        click.echo(text, nl=False)
