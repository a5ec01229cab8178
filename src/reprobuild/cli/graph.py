"""graph: the derivations behind an installable, as text for people and tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import in_flake, installable_argument

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@installable_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "dot", "json"]),
    default="text",
    help="How it is written (default: text).",
)
@click.pass_obj
def graph(app: App, /, installable: str, form: str) -> None:
    """The derivations behind INSTALLABLE, inputs first."""
    from reprobuild.cli.evaluation import evaluate

    app, names = in_flake(app, (installable,))
    whole, targets = evaluate(app, names)
    order = whole.order([place.drv for place in targets[0].located.values()])
    if app.json or form == "json":
        nodes = {str(d): {**whole.nodes[d].document(), "name": whole.nodes[d].name} for d in order}
        click.echo(json.dumps({"order": [str(d) for d in order], "nodes": nodes}, indent=2))
        return
    if form == "dot":
        click.echo("digraph reprobuild {\n  rankdir=RL;\n  node [shape=box, fontname=monospace];")
        for digest in order:
            click.echo(f'  "{digest.short}" [label="{whole.nodes[digest].name}"];')
        for digest in order:
            for entry in whole.nodes[digest].inputs:
                click.echo(f'  "{digest.short}" -> "{entry.drv.short}";')
        click.echo("}")
        return
    for digest in order:
        node = whole.nodes[digest]
        click.echo(f"{digest.short}  {node.builder:<16} {node.name}")
