"""`reprobuild compose`: a drop-in for the publishers' composition script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.dropin import refusing
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App

REFUSED = 2


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--output-dir",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where both files go.",
)
@click.pass_obj
def compose(app: App, manifest: Path, output_dir: Path) -> None:
    """Compose MANIFEST: writes integration.patch and integration.lock.json, prints the lock.

    Exits 2 when the manifest, a head or a patch is refused; then no lock is written.
    """
    from reprobuild.cli.files import read_document, write_errors
    from reprobuild.core.integration.manifest import parse_manifest
    from reprobuild.engine.compose import compose as run

    with refusing(REFUSED):
        path = manifest.resolve()
        parsed = parse_manifest(read_document(path, "E-MANIFEST"), str(manifest))
        sources = app.resolver.sources(Path.cwd(), path.parent)
        with write_errors(output_dir):
            pending = app.resolver.pending_files(output_dir)
            with _advised(manifest):
                lock = run(parsed, sources, sources.read, pending)
    click.echo(json.dumps(lock, sort_keys=True))


@contextmanager
def _advised(manifest: Path) -> Iterator[None]:
    """A manifest has no output that `integrate` could be asked about: says how to get one."""
    try:
        yield
    except ReprobuildError as error:
        if "collides_with" in error.facts:
            error.hint = (
                f"`reprobuild init --from-manifest {manifest}` in an empty directory makes a flake "
                "of it; there `reprobuild integrate` shows both sides and which heads collide"
            )
        raise
