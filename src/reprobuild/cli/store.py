"""store: upkeep."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.store_gc import gc
from reprobuild.cli.store_quarantine import quarantine
from reprobuild.cli.store_repair import repair
from reprobuild.cli.store_words import FEW, rows
from reprobuild.core.wording import plural
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.group()
def store() -> None:
    """Upkeep of the store: verify, repair, gc, roots, info, cat, quarantine."""


store.add_command(gc)
store.add_command(repair)
store.add_command(quarantine)


@store.command()
@click.pass_obj
def info(app: App, /) -> None:
    """Where the store is, and what it holds."""
    facts = {"path": str(app.store.path), **_plain(app.store.info())}
    if app.json:
        click.echo(json.dumps(facts, indent=2, sort_keys=True))
        return
    rows(facts)


@store.command()
@click.pass_obj
def verify(app: App, /) -> None:
    """Hash everything again; name all that is damaged."""
    report = app.store.verify()
    if report.problems:
        modes = [problem for problem in report.problems if problem.kind == "mode"]
        damage = [problem for problem in report.problems if problem.kind != "mode"]
        said = [str(problem) for problem in (*damage, *modes)]
        if not app.json and len(modes) > FEW:  # they would hide the damage
            said[len(damage) :] = [
                f"mode: {plural(len(modes), 'file')} with other modes, times or links than a store "
                f"has, such as {modes[0].path}: {modes[0].reason}; --json names all"
            ]
        parts = [plural(len(damage), "object")] if damage else []
        parts += [f"modes or times of {plural(len(modes), 'file')}"] if modes else []
        raise ReprobuildError("E-STORE-DAMAGED", f"damaged: {'; '.join(parts)}", problems=said)
    if app.json:
        click.echo(json.dumps(report.facts(), indent=2, sort_keys=True))
    else:
        click.echo("the store is sound")


@store.command()
@click.option("--remove", multiple=True, metavar="NAME", help="Keep what this root keeps no more.")
@click.pass_obj
def roots(app: App, /, remove: tuple[str, ...]) -> None:
    """What collection keeps."""
    absent = sorted(set(remove) - set(app.store.roots()))
    if absent:
        raise ReprobuildError(
            "E-USAGE",
            f"there is no root {absent[0]!r}",
            hint="`reprobuild store roots` names them",
            got=absent[0],
        )
    for name in remove:
        app.store.remove_root(name)
        app.store.remove_root(f"{name}=result")  # what is remembered of it
    names = app.store.roots()
    if app.json:
        click.echo(json.dumps({"roots": names}, indent=2))
        return
    for name in names:
        click.echo(name)


@store.command()
@click.argument("digest")
@click.pass_obj
def cat(app: App, /, digest: str) -> None:
    """A derivation, tree or blob of the store, by digest."""
    from reprobuild.core.digest import Digest
    from reprobuild.core.tree import Directory, File

    wanted = Digest.parse(digest)
    document = app.store.derivation(wanted)
    if document is not None:
        click.echo(json.dumps(json.loads(document), indent=2))
        return
    if app.store.contains(wanted):
        for name, entry in app.store.tree(wanted):
            shown = name.decode(errors="backslashreplace")
            if isinstance(entry, Directory):
                click.echo(f"d {entry.digest.hex} {shown}/")
            elif isinstance(entry, File):
                kind = "x" if entry.executable else "f"
                click.echo(f"{kind} {entry.digest.hex} {shown}  {entry.size}")
            else:
                click.echo(f"l {entry.target.decode(errors='backslashreplace')} {shown}")
        return
    with app.store.open_blob(wanted) as file:
        while chunk := file.read(1 << 16):
            sys.stdout.buffer.write(chunk)


def _plain(value: Any) -> dict[str, Any]:
    return {
        key: [str(v) for v in item] if isinstance(item, (list, tuple)) else item
        for key, item in dataclasses.asdict(value).items()
    }
