"""release runbook: how a release is served, what it is, and what was shown of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.cli.releasing import documents, emit, to_file

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@installable_argument
@to_file
@click.pass_obj
def runbook(app: App, /, installable: str, path: str | None) -> None:
    """Write the runbook of a release, in Markdown."""
    if path is not None:
        app.check_text(Path(path), "-o")
    app, (name,) = in_flake(app, (installable,))
    made = documents(app, name)
    if path is not None or not app.json:
        emit(app, made.runbook(), path)
    if app.json:
        document = {"reference": made.facts.reference, "text": made.runbook()}
        click.echo(json.dumps(document, indent=2, sort_keys=True))
