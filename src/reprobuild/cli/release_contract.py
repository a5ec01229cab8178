"""release contract: the source merge contract, and whether it still holds."""

from __future__ import annotations

import json
from dataclasses import asdict
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
@click.option(
    "--verify",
    is_flag=True,
    help="Work out from the repositories what can be reproduced, and what is still to be merged.",
)
@click.pass_obj
def contract(app: App, /, installable: str, path: str | None, verify: bool) -> int:
    """Write the source merge contract of a release, in Markdown."""
    from reprobuild.core.documents.state import stated

    if path is not None:
        app.check_text(Path(path), "-o")
    app, (name,) = in_flake(app, (installable,))
    made = documents(app, name)
    complaint = None
    if verify:
        with app.store.lease():
            found = made.verify(app.sources.pinner())
        app.quiet()
        state, complaint = found.state, found.complaint()
    else:
        state = {view.component: stated(view) for view in made.facts.sources}
    text = made.contract(state)
    if path is not None or not app.json:
        emit(app, text, path)
    if app.json:
        rows = {component: asdict(said) for component, said in state.items()}
        document = {"reference": made.facts.reference, "components": rows, "text": text}
        failed = complaint.as_document() if complaint else {}
        click.echo(json.dumps({**failed, **document}, indent=2, sort_keys=True))
        return complaint.exit_status if complaint else 0
    if complaint:
        raise complaint
    return 0
