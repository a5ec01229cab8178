"""graph: the derivations behind an installable, as text for people and tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import in_flake, installable_argument, wrote

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.digest import Digest
    from reprobuild.core.graph import Graph


@click.command()
@installable_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "dot", "json", "svg", "html"]),
    default="text",
    help="How it is written (default: text).",
)
@click.option("-o", "output", metavar="FILE", help="Write it there.")
@click.pass_obj
def graph(app: App, /, installable: str, form: str, output: str | None) -> None:
    """The derivations behind INSTALLABLE, inputs first.

    svg and html draw the files of an input, and the units of a module, as one; html lists every
    derivation below the drawing, and needs nothing else.
    """
    from reprobuild.cli.evaluation import evaluate

    if output is not None:
        app.check_text(Path(output), "-o")
    app, names = in_flake(app, (installable,))
    whole, targets = evaluate(app, names)
    roots = [place.drv for place in targets[0].located.values()]
    order = whole.order(roots)
    if app.json or form == "json":
        text = _json(whole, order)
    elif form == "dot":
        text = _dot(whole, order)
    elif form == "text":
        text = "".join(
            f"{drv.short}  {whole.nodes[drv].builder:<16} {whole.nodes[drv].name}\n"
            for drv in order
        )
    else:
        text = _drawn(app, whole, order, roots, form, str(targets[0].installable))
    if output is not None:
        app.world.write(Path(output), text)
        wrote(app, output)
    else:
        click.echo(text, nl=False)


def _json(whole: Graph, order: list[Digest]) -> str:
    nodes = {str(d): {**whole.nodes[d].document(), "name": whole.nodes[d].name} for d in order}
    return json.dumps({"order": [str(d) for d in order], "nodes": nodes}, indent=2) + "\n"


def _dot(whole: Graph, order: list[Digest]) -> str:
    lines = ["digraph reprobuild {", "  rankdir=RL;", "  node [shape=box, fontname=monospace];"]
    for digest in order:
        # JSON's quoting is DOT's, for what a name can hold.
        label = json.dumps(whole.nodes[digest].name, ensure_ascii=False)
        lines.append(f'  "{digest.short}" [label={label}];')
    for digest in order:
        for entry in whole.nodes[digest].inputs:
            lines.append(f'  "{digest.short}" -> "{entry.drv.short}";')
    return "\n".join([*lines, "}", ""])


def _drawn(
    app: App, whole: Graph, order: list[Digest], roots: list[Digest], form: str, title: str
) -> str:
    from reprobuild.core.diff.dag import GraphDiff, node_of
    from reprobuild.core.diff.graphview import grouped

    nodes = {digest.hex: node_of(whole.nodes[digest]) for digest in order}
    groups = grouped(nodes.get, [r.hex for r in roots], GraphDiff(), lambda name: name)
    rows = [
        {
            "name": nodes[digest.hex].name,
            "drv": str(digest),
            "builder": whole.nodes[digest].builder,
            "inputs": [
                (entry.name, whole.nodes[entry.drv].name) for entry in whole.nodes[digest].inputs
            ],
            "fixed": nodes[digest.hex].fixed,
        }
        for digest in reversed(order)
    ]
    return app.world.graph(form, title, groups, rows)
