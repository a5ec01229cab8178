"""pull: results out of a binary cache."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import complete_outputs, in_flake
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.encoding import Value
    from reprobuild.ports import Reporter


class _NoNotes:
    """Hands on all but notes: they are said once, at the end, or in the error's hint."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def emit(self, event: str, **fields: Value) -> None:
        if event != "note":
            self._reporter.emit(event, **fields)


@click.command()
@click.argument("installable", shell_complete=complete_outputs)
@click.argument("url")
@click.pass_obj
def pull(app: App, /, installable: str, url: str) -> None:
    """Take what INSTALLABLE came out as from a cache, without building anything."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.cli.substituters import substitution
    from reprobuild.core.derivation import Isolation
    from reprobuild.core.wording import plural
    from reprobuild.engine.recall import root_name
    from reprobuild.engine.results import keep_document

    app, names = in_flake(app, (installable,))
    with app.store.lease():
        graph, targets = evaluate(app, names)
        caches = substitution(app, (url,), _NoNotes(app.reporter))
        cache = caches.caches[0].name
        located = {n: place for target in targets for n, place in target.located.items()}
        drvs = [place.drv for place in located.values()]
        caches.prefetch(graph, drvs, Isolation.NONE, deep=False)
        outputs = {}
        for name, place in located.items():
            record = app.store.realized(place.drv)
            if record is None or not app.store.contains(record.outputs[place.output]):
                raise ReprobuildError(
                    "E-FETCH",
                    f"{cache} has no result of {name} that is trusted here",
                    hint="; ".join(caches.notes) or "push it there first",
                    drv=str(place.drv),
                )
            tree = record.outputs[place.output]
            outputs[name] = {"drv": str(place.drv), "tree": str(tree)}
            root = root_name(name, app.flake_dir)
            app.store.set_root(root, keep_document({place.drv: record}, {}))
    for note in caches.notes:
        app.reporter.emit("note", text=note)
    document = {"outputs": outputs, "taken": len(caches.taken)}
    app.quiet()
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    for name, row in outputs.items():
        click.echo(f"{name}  {row['tree']}")
    if caches.taken:
        click.echo(f"took {plural(len(caches.taken), 'result')} from {cache}")
    else:
        click.echo(f"took nothing: it was here already, and {cache} was not asked")
