"""import: a bundle into the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.core.wording import plural
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.bundle.signing import Signature, Trust


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--trust", multiple=True, metavar="KEY", help="A public key file to believe.")
@click.option("--unsigned", is_flag=True, help="Take content, but no record of a build.")
@click.option("--older", is_flag=True, help="Also one that is older than what was imported.")
@click.option("--require-proof", is_flag=True, help="Only with proof that it can be rebuilt.")
@click.option("--project", metavar="DIR", help="Write the flake and its files there.")
@click.pass_obj
def import_(app: App, /, file: str, **options: Any) -> None:
    """Bring a bundle into the store."""
    from reprobuild.core.bundle.manifest import parse_manifest
    from reprobuild.core.bundle.proof import check_proof, parse_proofs
    from reprobuild.engine.transfer_import import Importer

    if options["project"] is not None:
        app.check_directory(Path(options["project"]), "--project")
    with app.bundles.reader(Path(file)) as bundle:
        trust = _trust(app, options["trust"])
        signature = _signature(trust, bundle)
        trusted = signature is not None
        if not trusted and not options["unsigned"]:
            raise ReprobuildError(
                "E-BUNDLE-UNTRUSTED", f"{file} bears no signature of a trusted key", file=file
            )
        if options["require_proof"]:
            check_proof(parse_proofs(bundle.proofs()), bundle.digest, trust)
        bundle.check_head()
        with app.store.lease():
            names = parse_manifest(bundle.manifest).outputs
            if signature is not None and not options["older"]:
                app.bundles.check_age(signature, names)
            done = Importer(app.store).run(bundle, trusted=trusted)
            if signature is not None:
                app.bundles.note_age(signature, names)
            manifest = done.manifest
            app.bundles.install_sources(manifest.git)
            document: dict[str, Any] = {
                "bundle_digest": str(bundle.digest),
                **done.counts(),
                "kind": manifest.kind,
                "outputs": {
                    name: {"drv": str(w.drv), "tree": str(w.tree)}
                    for name, w in manifest.outputs.items()
                },
                "signed_by": signature.key.hex() if signature is not None else None,
                "trusted": trusted,
            }
            if options["project"] is not None and manifest.project is not None:
                directory = Path(options["project"])
                document["project"] = str(directory.absolute())
                app.bundles.write_project(manifest.project, directory)
    app.quiet()
    _print(app, document)


def _trust(app: App, files: Sequence[str]) -> Trust:
    """The user's trusted keys; those out of `files` are believed for now."""
    from reprobuild.core.bundle.signing import believing

    keys = [app.bundles.read_public(Path(f)) for f in files]
    return believing(app.keyring, keys, app.bundles.signed_by)


def _signature(trust: Trust, bundle: Any) -> Signature | None:
    """The signature of a trusted key."""
    from reprobuild.core.bundle.signing import BUNDLE, parse_signatures, trusted_by

    return trusted_by(trust, parse_signatures(bundle.signatures()), BUNDLE, bundle.digest)


def _print(app: App, document: dict[str, Any]) -> None:
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    added = ", ".join(f"{n} {what}" for what, n in document["added"].items()) or "nothing"
    size = document["bytes_added"] / 2**20
    click.echo(f"added {added} ({size:.1f} MiB); {document['present']} were here")
    for name, row in document["outputs"].items():
        click.echo(f"{name}  {row['tree']}")
    if document["records_left_out"]:
        left = plural(document["records_left_out"], "record")
        click.echo(f"left out, for nobody vouches for it: {left}")
    if "project" in document:
        click.echo(f"project in {document['project']}")
