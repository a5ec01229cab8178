"""store: upkeep."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App

_REPAIRED = {"modes": "set right", "left": "not the store's, left alone:", "roots": "cut back"}


@click.group()
def store() -> None:
    """Upkeep of the store: verify, repair, gc, roots, info, cat."""


@store.command()
@click.pass_obj
def info(app: App, /) -> None:
    """Where the store is, and what it holds."""
    facts = {"path": str(app.store.path), **_plain(app.store.info())}
    if app.json:
        click.echo(json.dumps(facts, indent=2, sort_keys=True))
        return
    _rows(facts)


@store.command()
@click.pass_obj
def verify(app: App, /) -> None:
    """Hash everything again; name all that is damaged."""
    report = app.store.verify()
    problems = list(report.problems)
    if problems:
        raise ReprobuildError(
            "E-STORE-DAMAGED",
            f"{len(problems)} objects are damaged",
            problems=[str(problem) for problem in problems][:200],
        )
    if app.json:
        click.echo(json.dumps(_plain(report), indent=2, sort_keys=True))
    else:
        click.echo("the store is sound")


@store.command()
@click.pass_obj
def repair(app: App, /) -> None:
    """Remove all that is damaged, so that the next run makes it again."""
    done = _plain(app.store.repair())
    removed = sum(len(names) for key, names in done.items() if key not in ("modes", "left"))
    if app.json:
        click.echo(json.dumps({**done, "removed": removed}, indent=2, sort_keys=True))
        return
    for kind, names in done.items():
        for name in names:
            click.echo(f"{_REPAIRED.get(kind, 'removed')} {kind}: {name}")
    if removed:
        click.echo(f"{removed} removed; `reprobuild realize` makes or fetches what it needs again")
    elif not done["modes"] and not done["left"]:
        click.echo("the store is sound")


@store.command()
@click.pass_obj
def roots(app: App, /) -> None:
    """What collection keeps."""
    names = app.store.roots()
    if app.json:
        click.echo(json.dumps({"roots": names}, indent=2))
        return
    for name in names:
        click.echo(name)


@store.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.pass_obj
def gc(app: App, /, dry_run: bool) -> None:
    """Remove what no root needs."""
    collection = app.store.gc(dry_run=dry_run)
    facts = _plain(collection)
    if app.json:
        click.echo(json.dumps(facts, indent=2, sort_keys=True))
        return
    _rows(facts)


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


def _rows(facts: dict[str, Any]) -> None:
    """One line for each fact; kinds of objects by number and size, lists by their length."""
    for name, value in facts.items():
        if name == "kinds":
            for kind, held in value.items():
                size = held["bytes"] / 2**20
                click.echo(f"{kind:<14} {held['count']:>8} {size:12.1f} MiB")
        elif name.endswith("bytes"):
            click.echo(f"{name.removesuffix('_bytes'):<14} {value / 2**20:.0f} MiB")
        else:
            shown = len(value) if isinstance(value, list) else value
            click.echo(f"{name:<14} {shown}")
