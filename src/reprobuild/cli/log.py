"""log: what a build said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@click.argument("derivation")
@click.option("--installable", default="", help="Where to look (default: the default output).")
@click.pass_obj
def log(app: App, /, derivation: str, installable: str) -> None:
    """The log of the build of DERIVATION (a name, or a drv digest)."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.cli.options import in_flake
    from reprobuild.cli.why import find_derivation

    app, names = in_flake(app, (installable,))
    graph, _ = evaluate(app, names)
    drv = find_derivation(graph, derivation)
    record = app.store.realized(drv)
    if record is None or not record.log:
        kind = graph.nodes[drv].builder
        raise ReprobuildError(
            "E-USAGE",
            f"no log of {graph.nodes[drv].name} is kept",
            hint="it has not been built here" if record is None else f"{kind} leaves no log",
        )
    path = app.store.logs / record.log
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 16):
                sys.stdout.buffer.write(chunk)
    except FileNotFoundError as error:
        raise ReprobuildError("E-USAGE", f"the log {path} is gone", file=str(path)) from error
