"""log: what a build said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from pathlib import Path

    from reprobuild.app import App
    from reprobuild.core.digest import Digest
    from reprobuild.core.graph import Graph


@click.command()
@click.argument("derivation")
@click.option("--installable", default="", help="Where to look (default: in all outputs).")
@click.pass_obj
def log(app: App, /, derivation: str, installable: str) -> None:
    """The log of the build of DERIVATION (a name, or a drv digest)."""
    from reprobuild.cli.options import in_flake
    from reprobuild.core.derivation import SANDBOX

    app, names = in_flake(app, (installable,))
    graph, drv = _find(app, derivation, names[0])
    path = _newest(app, drv)
    if path is None:
        node = graph.nodes[drv]
        raise ReprobuildError(
            "E-USAGE",
            f"no log of {node.name} is kept",
            hint="it has not been built here"
            if node.builder == SANDBOX
            else f"{node.builder} leaves no log",
        )
    empty = True
    with path.open("rb") as file:
        while chunk := file.read(1 << 16):
            empty = False
            sys.stdout.buffer.write(chunk)
    if empty:
        click.echo(
            f"{graph.nodes[drv].name} was built, and said nothing: its log is empty", err=True
        )


def _find(app: App, derivation: str, installable: str) -> tuple[Graph, Digest]:
    """The derivation; without an installable of any output, the default first."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.cli.why import find_derivation

    flake = app.project.flake
    outputs = sorted(flake.outputs, key=lambda name: (name != flake.default, name))
    problems: list[ReprobuildError] = []
    for name in [installable] if installable else outputs:
        try:
            graph, _ = evaluate(app, [name])
            return graph, find_derivation(graph, derivation)
        except ReprobuildError as error:
            problems.append(error)
    raise problems[0]


def _newest(app: App, drv: Digest) -> Path | None:
    """The log of the last build, be it one that failed; else that of the record in use."""
    logs = (path for path in app.store.logs.glob(f"{drv.short}-*.log") if path.is_file())
    found = sorted(logs, key=lambda p: p.stat().st_mtime_ns)
    if found:
        return found[-1]
    record = app.store.realized(drv)
    path = app.store.logs / record.log if record is not None and record.log else None
    return path if path is not None and path.is_file() else None
