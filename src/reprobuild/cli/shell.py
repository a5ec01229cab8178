"""shell: the sandbox of a build, to look around in."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("installable", default="")
@click.option("--derivation", "-d", help="Which of its derivations (default: the last sandboxed).")
@click.option("--isolation", type=click.Choice(["full", "host-toolchain", "none"]), default="full")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def shell(
    ctx: click.Context,
    /,
    installable: str,
    derivation: str | None,
    isolation: str,
    command: tuple[str, ...],
) -> None:
    """Open the sandbox of INSTALLABLE's build with its inputs; the build itself is not run.

    The build's own command stands in $REPROBUILD_COMMAND. With COMMAND, runs that instead of a
    shell.
    """
    import shlex
    from dataclasses import replace

    from reprobuild.cli.evaluation import evaluate
    from reprobuild.cli.options import in_flake, machine_memory
    from reprobuild.cli.why import find_derivation
    from reprobuild.core.derivation import SANDBOX, Isolation
    from reprobuild.engine.realize import Wishes
    from reprobuild.engine.resolve import input_content
    from reprobuild.engine.scheduler import Limits

    app, names = in_flake(ctx.obj, (installable,))
    graph, targets = evaluate(app, names)
    start = next(iter(targets[0].located.values())).drv
    if derivation:
        drv = find_derivation(graph, derivation)
    else:
        built = [d for d in graph.order([start]) if graph.nodes[d].builder == SANDBOX]
        if not built:
            raise ReprobuildError("E-USAGE", f"{installable} is made without a sandbox")
        drv = built[-1]
    node = graph.nodes[drv]
    if node.builder != SANDBOX:
        raise ReprobuildError(
            "E-USAGE", f"{node.name} is made by {node.builder}, which has no sandbox"
        )
    grade = Isolation(isolation)
    with app.store.lease():
        realizer = app.realizer(grade)
        limits = Limits(jobs=2, cores=2, memory=int(machine_memory() * 0.85))
        needed = sorted({entry.drv for entry in node.inputs})
        done = realizer.realize(graph, needed, Wishes(grade, limits))
        inputs = {
            entry.name: input_content(
                app.store, entry, done.chosen[entry.drv].outputs[entry.output], node.name
            )
            for entry in node.inputs
        }
        home = app.store.path / "build"
        home.mkdir(exist_ok=True)
        workdir = Path(tempfile.mkdtemp(prefix="shell-", dir=home))
        builder = realizer.builder
        try:
            request = builder.request(node, inputs, workdir)
            env = {
                **request.env,
                "REPROBUILD_COMMAND": shlex.join(node.argv),
                "TERM": app.settings.environment.get("TERM", "dumb"),
            }
            status = builder.executor.shell(
                replace(request, env=env), list(command) or ["/bin/sh", "-i"]
            )
        finally:
            builder.executor.discard(workdir)
    sys.exit(status)
