"""release check: whether a release's documents still say the truth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.cli.releasing import documents, integrated
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@installable_argument
@click.pass_obj
def check(app: App, /, installable: str) -> None:
    """Check every variable and flag in the documents, profiles against their rules, and pins.

    Sources are looked into where they are in the store; of the others only the declared interface
    counts, and the answer says so.
    """
    from reprobuild.engine.releasecheck import check_release

    app, (name,) = in_flake(app, (installable,))
    made = documents(app, name)
    with app.store.lease():
        trees, unseen = integrated(app, made.output)
        result = check_release(made, app.store, trees, unseen)
    if app.json:
        document = {"names": result.names, "problems": result.problems, "unseen": result.unseen}
        if not result.problems:
            click.echo(json.dumps(document, indent=2, sort_keys=True))
    else:
        for key, where in result.names.items():
            click.echo(f"  {key:<40} {where or 'UNKNOWN'}")
        for component, why in result.unseen.items():
            click.echo(f"not looked into: {component}: {why}")
    if result.problems:
        raise ReprobuildError(
            "E-RELEASE-CHECK",
            f"{made.output}: {result.problems[0]}"
            + (f" (and {len(result.problems) - 1} more)" if len(result.problems) > 1 else ""),
            problems=result.problems,
        )
    if not app.json:
        click.echo(f"{made.output}: {len(result.names)} variables and flags, all known")
