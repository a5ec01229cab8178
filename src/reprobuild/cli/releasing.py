"""What the `release` commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import wrote
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.digest import Digest
    from reprobuild.engine.documents import ReleaseDocuments

to_file = click.option(
    "-o", "--output", "path", metavar="FILE", help="Write here instead of standard output."
)


def documents(app: App, installable: str) -> ReleaseDocuments:
    """The documents of the output that an installable names; raises E-USAGE for a component."""
    from reprobuild.core.installable import parse_installable
    from reprobuild.engine.documents import ReleaseDocuments
    from reprobuild.engine.qualify import bound

    wanted = parse_installable(installable, app.project.flake)
    if wanted.component is not None:
        raise ReprobuildError(
            "E-USAGE",
            f"{installable}: a document is about a whole output",
            hint=f"say {wanted.output}",
        )
    made = ReleaseDocuments(app.project, wanted.output)
    made.evidence = bound(app.qualification.of(wanted.output), made.facts.reference)
    return made


def emit(app: App, text: str, path: str | None) -> None:
    """A document to standard output, or whole into a file, which is then named."""
    if path is None:
        click.echo(text, nl=False)
    else:
        app.resolver.replace_file(Path(path), text.encode())
        wrote(app, path)


def integrated(app: App, output: str) -> tuple[dict[str, Digest], dict[str, str]]:
    """The integrated sources of an output that the store has, and why it has not the others."""
    from reprobuild.core.graph import Graph
    from reprobuild.engine.evaluate import Evaluator

    project = app.project
    evaluator = Evaluator(project.flake, project.components, project.lock, output, graph=Graph())
    trees: dict[str, Digest] = {}
    unseen: dict[str, str] = {}
    for component in project.flake.outputs[output].sources:
        try:
            located = evaluator.source(component)
        except ReprobuildError as error:
            if error.code not in ("E-OUTPUT-OPEN", "E-LOCK-MISSING", "E-LOCK-STALE"):
                raise
            unseen[component] = error.message
            continue
        record = app.store.realized(located.drv)
        tree = record.outputs.get(located.output) if record else None
        if tree is None or not app.store.contains(tree):
            unseen[component] = f"not in the store; run `reprobuild realize {output}.{component}`"
        else:
            trees[component] = tree
    return trees, unseen
