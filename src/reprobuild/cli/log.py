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


@click.command()
@click.argument("derivation")
@click.option("--installable", default="", help="Where to look (default: the default output).")
@click.pass_obj
def log(app: App, /, derivation: str, installable: str) -> None:
    """The log of the build of DERIVATION (a name, or a drv digest)."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.cli.options import in_flake
    from reprobuild.cli.why import find_derivation
    from reprobuild.core.derivation import SANDBOX

    app, names = in_flake(app, (installable,))
    graph, _ = evaluate(app, names)
    drv = find_derivation(graph, derivation)
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
    with path.open("rb") as file:
        while chunk := file.read(1 << 16):
            sys.stdout.buffer.write(chunk)


def _newest(app: App, drv: Digest) -> Path | None:
    """The log of the last build, be it one that failed; else that of the record in use."""
    found = sorted(app.store.logs.glob(f"{drv.short}-*.log"), key=lambda p: p.stat().st_mtime_ns)
    if found:
        return found[-1]
    record = app.store.realized(drv)
    path = app.store.logs / record.log if record is not None and record.log else None
    return path if path is not None and path.exists() else None
