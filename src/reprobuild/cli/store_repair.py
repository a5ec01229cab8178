"""store repair: damaged content brought back, or taken out of the way."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import machine_memory
from reprobuild.cli.store_words import FEW
from reprobuild.core.wording import plural
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.app.upkeep import Repaired
    from reprobuild.core.graph import Graph
    from reprobuild.engine.rescue import Rescued

_SAID = {
    "restored": "restored:",
    "modes": "set right modes:",
    "left": "not the store's, left alone:",
    "roots": "cut back roots:",
}
_KEPT = ("modes", "left", "restored")
"""Lists that name nothing that was removed."""


@click.command()
@click.option(
    "--from", "others", multiple=True, metavar="DIR", help="Take content from another store."
)
@click.option("--substituter", multiple=True, metavar="URL", help="A binary cache to ask.")
@click.option("--rebuild", is_flag=True, help="Build again what this project can build.")
@click.pass_obj
def repair(
    app: App, /, others: tuple[str, ...], substituter: tuple[str, ...], rebuild: bool
) -> None:
    """Bring back what is damaged; remove what cannot be, so that the next run makes it again.

    Equal content elsewhere in the store is always looked for. Exits 7 when something stays lost
    that a cache or a rebuild was asked for, and when something that is not the store's lies where
    only a person can move it away.
    """
    done = app.upkeep.repair([Path(other) for other in others])
    rescued = _rescue(app, done, substituter, rebuild) if substituter or rebuild else None
    _say(app, done, rescued)
    if rescued is not None and rescued.failed:
        raise ReprobuildError(
            "E-STORE-MISSING",
            f"{plural(len(rescued.failed), 'result')} could not be had again",
            lost=[f"{name}: {why}" for name, why in sorted(rescued.failed.items())],
        )
    if done.stops:
        raise ReprobuildError(
            "E-STORE-DAMAGED",
            f"{plural(len(done.stops), 'thing')} that the store did not make "
            f"stand in its way: {', '.join(done.stops[:3])}",
            hint="move them away, and repair again",
            stops=done.stops,
            **(done.lists() if app.json else {}),  # else they were said
        )


def _rescue(app: App, done: Repaired, urls: Sequence[str], rebuild: bool) -> Rescued:
    from reprobuild.cli.substituters import substitution
    from reprobuild.core.derivation import Isolation
    from reprobuild.engine.rescue import Rescuer, bottom_first
    from reprobuild.engine.scheduler import Limits

    cores = len(os.sched_getaffinity(0))
    limits = Limits(jobs=cores, cores=cores, memory=int(machine_memory() * 0.85))
    with app.store.lease():
        asked = substitution(app, urls)
        rescuer = Rescuer(app.store, asked.caches, asked.trust)
        if rebuild and done.lost:
            rescuer.graph = _recipes(app)
            rescuer.realizer = app.building.realizer(Isolation.FULL)
        rescued = rescuer.run(bottom_first(done.lost, rescuer.graph), limits)
        app.store.readmit(done)
    return rescued


def _recipes(app: App) -> Graph:
    """The recipes of all outputs of the project that can be evaluated."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.core.graph import Graph

    graph = Graph()
    for name in app.project.flake.outputs:
        try:
            found, _ = evaluate(app, [name])
        except ReprobuildError as error:
            click.echo(f"nothing of {name} can be rebuilt: {error.message}", err=True)
            continue
        graph.nodes.update(found.nodes)
    return graph


def _say(app: App, done: Repaired, rescued: Rescued | None) -> None:
    lists = done.lists()
    removed = sum(len(names) for key, names in lists.items() if key not in _KEPT)
    lost = sorted({record.name or str(record.drv) for record in done.lost})
    again = [*rescued.fetched, *rescued.rebuilt] if rescued is not None else []
    if app.json:
        if not done.stops and (
            rescued is None or not rescued.failed
        ):  # else the error is the document
            document = {**lists, "lost": lost, "removed": removed}
            if rescued is not None:
                document |= {"fetched": rescued.fetched, "rebuilt": rescued.rebuilt}
            click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    for kind, names in lists.items():
        if kind == "modes" and len(names) > FEW:
            click.echo(f"set right the modes and times of {plural(len(names), 'file')}")
            continue
        for name in names:
            click.echo(f"{_SAID.get(kind, f'removed {kind}:')} {name}")
    if rescued is not None:
        for how, found in (("fetched", rescued.fetched), ("rebuilt", rescued.rebuilt)):
            for name in found:
                click.echo(f"{how} again: {name}")
    for name in sorted(set(lost) - set(again)):
        click.echo(f"lost: {name}")
    if removed and len(again) < len(done.lost):
        click.echo(f"{removed} removed; `reprobuild realize` makes or fetches what it needs again")
    elif not any(lists.values()):
        click.echo("the store is sound")
