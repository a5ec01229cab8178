"""show: what there is, by name and digest. Never builds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@installable_argument
@click.pass_obj
def show(app: App, /, installable: str) -> None:
    """Outputs and components with their drv digests, and image references."""
    from reprobuild.core.installable import parse_installable

    app, (name,) = in_flake(app, (installable,))
    flake = app.project.flake
    wanted = [parse_installable(name, flake).output] if name else sorted(flake.outputs)
    outputs = {output: _output(app, output) for output in wanted}
    if app.json:
        click.echo(json.dumps({"outputs": outputs}, indent=2, sort_keys=True))
        return
    for output, facts in outputs.items():
        mark = "  (default)" if output == flake.default else ""
        click.echo(f"{output}{mark}  {facts.get('drv', '')}")
        if facts.get("reference"):
            click.echo(f"  {facts['reference']}")
        if "open" in facts:
            click.echo(f"  open: {facts['open']}")
        for component, entry in facts["components"].items():
            click.echo(f"  {component:<20} {entry['version']:<12} {entry['drv']}")


def _output(app: App, output: str) -> dict[str, Any]:
    from reprobuild.core.graph import Graph
    from reprobuild.engine.evaluate import Evaluator

    project = app.project
    evaluator = Evaluator(
        project.flake,
        project.components,
        project.lock,
        output,
        contract_program=app.contract_program,
        verify_program=app.verify_program,
        graph=Graph(),
    )
    try:
        app.check_fixtures(output)
        evaluation = evaluator.evaluate()
    except ReprobuildError as error:
        if error.code not in ("E-OUTPUT-OPEN", "E-LOCK-MISSING", "E-LOCK-STALE"):
            raise
        return {"components": {}, "drv": None, "open": error.message, "reference": None}
    image = evaluation.image
    return {
        "components": {
            name: {"drv": str(place.drv), "version": evaluator.version(name)}
            for name, place in evaluation.components.items()
        },
        "drv": str(image.located.drv) if image else None,
        "labels": dict(image.labels) if image else {},
        "reference": image.reference if image else None,
    }
