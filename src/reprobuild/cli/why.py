"""why: the path from an installable to one of its derivations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import complete_outputs, in_flake
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.cli.evaluation import Target
    from reprobuild.core.digest import Digest
    from reprobuild.core.graph import Graph


@click.command()
@click.argument("installable", shell_complete=complete_outputs)
@click.argument("derivation", required=False)
@click.option("--rebuilt", is_flag=True, help="The fields that differ from the last record.")
@click.pass_obj
def why(app: App, /, installable: str, derivation: str | None, rebuilt: bool) -> None:
    """The path by which INSTALLABLE reaches DERIVATION (a name, or a drv digest).

    With --rebuilt: what made its recipe another one than when INSTALLABLE was last realized;
    without DERIVATION, of the installable itself.
    """
    from reprobuild.cli.evaluation import evaluate

    app, names = in_flake(app, (installable,))
    graph, targets = evaluate(app, names)
    start = next(iter(targets[0].located.values())).drv
    if rebuilt:
        end = find_derivation(graph, derivation) if derivation else start
        _rebuilt(app, targets[0], graph, end)
        return
    if derivation is None:
        raise ReprobuildError("E-USAGE", "say which derivation, by name or digest")
    end = find_derivation(graph, derivation)
    path = graph.path(start, end)
    image = targets[0].evaluation.image
    stated = image.stated if image is not None else {}
    component = next((name for name, drv in stated.items() if drv == end), "")
    if not path and component and component == targets[0].installable.component:
        # A label's drv is of what the component puts into images: that leads to the component.
        path = graph.path(end, start)
    if not path:
        raise ReprobuildError("E-USAGE", f"{installable} does not reach {derivation}")
    if app.json:
        rows = [{"drv": str(d), "name": graph.nodes[d].name} for d in path]
        click.echo(json.dumps({"path": rows, "component": component or None}, indent=2))
        return
    if component:
        output = targets[0].installable.output
        click.echo(f"{end.short} is what {output}.{component} puts into the image")
    for depth, digest in enumerate(path):
        click.echo(f"{'  ' * depth}{graph.nodes[digest].name}  {digest.short}")


def _rebuilt(app: App, target: Target, graph: Graph, end: Digest) -> None:
    from reprobuild.engine.rebuilt import last_realized, why_rebuilt
    from reprobuild.engine.recall import root_name

    name = next(iter(target.located))
    store = app.store
    last = last_realized(store, root_name(name, app.flake_dir), name)
    roots = {n: place.drv for n, place in target.located.items()}
    found = why_rebuilt(graph, roots, last, end, store, list(target.evaluation.components))
    if app.json:
        click.echo(json.dumps(found.document(), indent=2, sort_keys=True))
        return
    for line in found.lines():
        click.echo(line)


def find_derivation(graph: Graph, text: str) -> Digest:
    """The derivation of that name, or whose digest begins so; raises E-USAGE unless one."""
    from difflib import get_close_matches

    bare = text.removeprefix("blake3:")
    found = [d for d, n in graph.nodes.items() if n.name == text]
    if not found and len(bare) >= 6:
        found = [d for d in graph.nodes if d.hex.startswith(bare)]
    if len(found) == 1:
        return found[0]
    near = get_close_matches(text, sorted({n.name for n in graph.nodes.values()}), 3, 0.6)
    raise ReprobuildError(
        "E-USAGE",
        f"{len(found) or 'no'} derivations are called {text!r}",
        got=text,
        hint="near are " + ", ".join(near) if near else "`reprobuild graph` lists them",
    )
