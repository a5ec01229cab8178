"""shell: the sandbox of a build, to look around in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import complete_outputs

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("installable", default="", shell_complete=complete_outputs)
@click.option("--derivation", "-d", help="Which of its derivations (default: the last sandboxed).")
@click.option("--kept", metavar="DIR", help="With what a failed build left (--keep-failed).")
@click.option(
    "--isolation",
    type=click.Choice(["full", "host-toolchain", "none"]),
    default="full",
    help="The grade of the sandbox (default: full).",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def shell(
    app: App,
    /,
    installable: str,
    derivation: str | None,
    kept: str | None,
    isolation: str,
    command: tuple[str, ...],
) -> None:
    """Open the sandbox of INSTALLABLE's build with its inputs; the build itself is not run.

    The build's own command stands in $REPROBUILD_COMMAND. With COMMAND, runs that instead of a
    shell.
    """
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.cli.options import in_flake, machine_memory
    from reprobuild.cli.why import find_derivation
    from reprobuild.core.derivation import Isolation
    from reprobuild.engine.realize import Wishes
    from reprobuild.engine.room import interactive_shell, room, sandboxed
    from reprobuild.engine.scheduler import Limits

    app, names = in_flake(app, (installable,))
    graph, targets = evaluate(app, names)
    start = next(iter(targets[0].located.values())).drv
    drv = find_derivation(graph, derivation) if derivation else sandboxed(graph, start)
    grade = Isolation(isolation)
    realizer = app.building.realizer(grade)
    wishes = Wishes(grade, Limits(jobs=2, cores=2, memory=int(machine_memory() * 0.85)))
    terminal = app.settings.environment.get("TERM", "dumb")
    with (
        app.store.lease(),
        room(realizer, graph, drv, wishes, Path(kept) if kept else None, terminal) as request,
    ):
        argv = list(command) or interactive_shell(request)
        status = realizer.builder.executor.shell(request, argv)
    sys.exit(status)
