"""verdict: what two builds of one thing differ in, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@click.argument("first")
@click.argument("second")
@click.pass_obj
def verdict(app: App, /, first: str, second: str) -> None:
    """Say what FIRST and SECOND differ in, why, and which setting would cure it.

    Each is a tree of the store (a digest, as E-NOT-REPRODUCIBLE names them), a directory or a file.
    CUDA objects and libraries are compared by section and kernel.
    """
    one, two = _tree(app, first), _tree(app, second)
    found = app.kernels.verdict({"out": one}, {"out": two})
    if app.json:
        document = {"first": str(one), "identical": one == two, "second": str(two)}
        click.echo(json.dumps({**document, **found.document()}, indent=2))
        return
    for line in found.lines() or ["identical"]:
        click.echo(line)


def _tree(app: App, text: str) -> Digest:
    """A tree's digest; directories and files are stored first, a file under a constant name."""
    from reprobuild.core.tree import Tree

    path = Path(text)
    if path.is_dir():
        return app.store.capture(path)
    if path.is_file():
        with path.open("rb") as file:
            entry = app.store.add_blob(file)
        node = Tree.of({b"file": entry})
        app.store.add_trees({node.digest: node})
        return node.digest
    try:
        digest = Digest.parse(text)
    except ReprobuildError as error:
        raise ReprobuildError(
            "E-USAGE", f"{text!r} is no tree's digest, and no such file is here", got=text
        ) from error
    if not app.store.contains(digest):
        raise ReprobuildError("E-STORE-MISSING", f"{digest} is not in the store", tree=text)
    return digest
