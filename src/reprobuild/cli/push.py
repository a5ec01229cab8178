"""push: results into a binary cache."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import complete_outputs, in_flake

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@click.argument("installable", shell_complete=complete_outputs)
@click.argument("url")
@click.option("--key", default="default", metavar="NAME", help="The key to sign with.")
@click.pass_obj
def push(app: App, /, installable: str, url: str, key: str) -> None:
    """Put what was made for INSTALLABLE into a cache: a directory, or oci://REGISTRY/REPOSITORY."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.core.wording import plural
    from reprobuild.engine.substitute import cache_shipment, to_push

    app, names = in_flake(app, (installable,))
    signer = app.keyring.signer(key)
    pushed = present = 0
    with (
        app.store.lease(),
        closing(app.bundles.cache_writer(url, app.sources.fetch_settings)) as cache,
    ):
        graph, targets = evaluate(app, names)
        drvs = [place.drv for target in targets for place in target.located.values()]
        records, absent = to_push(app.store, graph, drvs)
        for record in records:
            if cache.has(record, signer.key):
                present += 1
                continue
            name, shipment = cache_shipment(app.store, record)
            app.bundles.put_in_cache(cache, record, name, shipment, signer)
            pushed += 1
    document = {"cache": cache.name, "not_made": absent, "present": present, "pushed": pushed}
    app.quiet()
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    there = f"; {plural(present, 'result')} there already" if present else ""
    click.echo(f"pushed {plural(pushed, 'result')} to {cache.name}{there}")
    if absent:
        click.echo(f"no result here of {plural(absent, 'recipe')}")
