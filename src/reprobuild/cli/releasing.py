"""What the `release` commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.engine.documents import ReleaseDocuments

to_file = click.option(
    "-o", "--output", "path", metavar="FILE", help="Write here instead of standard output."
)


def documents(app: App, installable: str) -> ReleaseDocuments:
    """The documents of the output that an installable names; raises E-USAGE for a component."""
    from reprobuild.core.installable import parse_installable
    from reprobuild.engine.documents import ReleaseDocuments

    wanted = parse_installable(installable, app.project.flake)
    if wanted.component is not None:
        raise ReprobuildError(
            "E-USAGE",
            f"{installable}: a document is about a whole output",
            hint=f"say {wanted.output}",
        )
    return ReleaseDocuments(app.project, wanted.output, app.evidence.of(wanted.output))


def emit(app: App, text: str, path: str | None) -> None:
    """A document to standard output, or whole into a file."""
    if path is None:
        click.echo(text, nl=False)
    else:
        app.resolver.replace_file(Path(path), text.encode())
