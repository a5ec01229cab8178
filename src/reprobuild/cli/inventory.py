"""inventory: what the store has, small enough to carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from reprobuild.app import App
from reprobuild.core.wording import plural, size


@click.command()
@click.option("-o", "--output", metavar="FILE", help="Write it there (else: base64).")
@click.pass_obj
def inventory(app: App, /, output: str | None) -> None:
    """Say what the store has, for `export --have` on the other side."""
    import base64

    from reprobuild.core.bundle.inventory import QR_BYTES, Inventory
    from reprobuild.engine.inventory import take_stock

    if output is not None:
        app.check_text(Path(output), "-o")
    with app.store.lease():
        closures, trees = take_stock(app.store)
        store, counter = app.bundles.next_inventory()
    signer = app.keyring.signer() if app.keyring.has() else None
    data = Inventory(store, counter, closures, trees).signed(signer).encode()
    document = {
        "bytes": len(data),
        "closures": [str(d) for d in closures],
        "counter": counter,
        "signed_by": signer.key.hex() if signer is not None else None,
        "fits_qr_code": len(data) <= QR_BYTES,
        "inventory": base64.b64encode(data).decode(),
        "store": store.hex(),
        "trees": [str(d) for d in trees],
    }
    if output is not None:
        app.resolver.replace_file(Path(output), data)
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
    elif output is None:
        click.echo(document["inventory"])
    else:
        what = f"{plural(len(closures), 'closure')}, {plural(len(trees), 'single tree')}"
        click.echo(f"{output}: {what}, {size(len(data))}")
