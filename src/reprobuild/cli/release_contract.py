"""release contract: the source merge contract, and whether it still holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.cli.releasing import documents, emit, to_file
from reprobuild.errors import ReprobuildError

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
def contract(app: App, /, installable: str, path: str | None, verify: bool) -> None:
    """Write the source merge contract of a release, in Markdown."""
    from reprobuild.core.documents.state import stated

    app, (name,) = in_flake(app, (installable,))
    made = documents(app, name)
    if verify:
        with app.store.lease():
            state = made.verify(app.sources.pinner())
        app.quiet()
    else:
        state = {view.component: stated(view) for view in made.facts.sources}
    text = made.contract(state)
    broken = [name for name, said in state.items() if said.from_pins.startswith("NO")]
    if app.json and not broken:
        rows = {component: asdict(said) for component, said in state.items()}
        document = {"reference": made.facts.reference, "components": rows, "text": text}
        click.echo(json.dumps(document, indent=2, sort_keys=True))
    elif not app.json:
        emit(app, text, path)
    if broken:
        raise ReprobuildError(
            "E-TREE-MISMATCH",
            f"the pins of {', '.join(broken)} give another tree than the contract states",
            components=broken,
        )
