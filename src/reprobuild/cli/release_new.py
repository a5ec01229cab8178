"""release new: the output of the release that follows one."""

from __future__ import annotations

import json
from datetime import date as Date
from datetime import datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@click.option("--from", "old", required=True, metavar="OLD", help="The output that it follows.")
@click.option("--revision", metavar="NAME", help="Its revision (default: the next number).")
@click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="Its date (default: today).",
)
@click.pass_obj
def new(app: App, old: str, revision: str | None, date: datetime | None) -> None:
    """Begin a release from OLD: its output under the next revision, in a file of its own.

    Bases, heads, documents and profiles are OLD's until you change them; what was published and
    shown of OLD (digests, results, evidence) is left out. Nothing that exists is overwritten.
    """
    made = app.new_release(old, revision, date.date() if date else Date.today())
    if app.json:
        document = {
            "output": made.output,
            "revision": made.revision,
            "written": list(made.written),
            "still": list(made.still),
        }
        click.echo(json.dumps(document, indent=2))
        return
    for file in made.written:
        click.echo(f"wrote {file}")
    if made.still:
        click.echo("these texts still name the old revision; read them:")
        for place in made.still:
            click.echo(f"  {place}")
    click.echo(f"next: change its heads, then `reprobuild lock`, `reprobuild diff {old} ", nl=False)
    click.echo(f"{made.output}`")
