"""`reprobuild audit`: a drop-in for the publishers' audit of open pull requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.dropin import refusing

if TYPE_CHECKING:
    from reprobuild.app import App

REFUSED = 1


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--pulls-json",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A saved list of open pull requests, instead of the network.",
)
@click.option("--write", is_flag=True, help="Draft an exclusion for each unclassified one.")
@click.pass_obj
def audit(app: App, manifest: Path, pulls_json: Path | None, write: bool) -> int:
    """Fail when an open pull request is neither included nor excluded, or has moved.

    The forge is asked with GITHUB_TOKEN or GH_TOKEN where one is set. Exits 1 on refusal.
    """
    from reprobuild.cli.files import read_document, write_errors
    from reprobuild.core.integration.audit import audit as compare
    from reprobuild.core.integration.audit import (
        parse_classified,
        parse_pulls,
        repository_slug,
        with_drafts,
    )
    from reprobuild.errors import ReprobuildError

    with refusing(REFUSED):
        try:
            data = read_document(manifest, "E-MANIFEST")
            classified = parse_classified(data, str(manifest))
            if pulls_json is not None:
                pulls = parse_pulls(read_document(pulls_json, "E-PULLS"), str(pulls_json))
            else:
                slug = repository_slug(classified.repository)
                pulls = app.resolver.forge().open_pulls(slug, classified.base)
        except ReprobuildError as error:
            error.message = f"release PR audit failed: {error.message}"
            raise
        found = compare(classified, pulls)
        if write and found.unclassified:
            with write_errors(manifest):
                app.resolver.replace_file(manifest, with_drafts(data, found))
    if not found.passed:
        failed = ReprobuildError(
            "E-AUDIT",
            "release PR audit failed: " + "; ".join(found.complaints()),
            unclassified=[p.number for p in found.unclassified],
            moved=[m.number for m in found.moved],
        )
        if not app.json:
            with refusing(REFUSED):
                raise failed
        click.echo(json.dumps({**failed.as_document(), **found.document()}, indent=2))
        return REFUSED
    if app.json:
        click.echo(json.dumps(found.document(), indent=2))
    else:
        count = found.open_count
        click.echo(f"release PR audit: PASS ({count} open base-branch PRs classified)")
    return 0
