"""push: results into a binary cache."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import in_flake

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@click.argument("installable")
@click.argument("url")
@click.option("--key", default="default", metavar="NAME", help="The key to sign with.")
@click.pass_obj
def push(app: App, /, installable: str, url: str, key: str) -> None:
    """Put what was made for INSTALLABLE into a cache directory."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.engine.substitute import cache_shipment, to_push

    app, names = in_flake(app, (installable,))
    signer = app.keyring.signer(key)
    cache = app.bundles.cache_directory(url)
    pushed = present = 0
    with app.store.lease():
        graph, targets = evaluate(app, names)
        drvs = [place.drv for target in targets for place in target.located.values()]
        records, absent = to_push(app.store, graph, drvs)
        for record in records:
            name, shipment = cache_shipment(app.store, record)
            new = app.bundles.put_in_cache(cache, record, name, shipment, signer)
            pushed, present = pushed + new, present + (not new)
    document = {"cache": str(cache.path), "not_made": absent, "present": present, "pushed": pushed}
    app.quiet()
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    click.echo(f"pushed {pushed} results to {cache.path}; {present} were there")
    if absent:
        click.echo(f"{absent} recipes have no result here")
