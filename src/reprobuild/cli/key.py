"""key: signing keys of this user, and whose signatures are believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.publickey import PublicKey

name_argument = click.argument("name", default="default", required=False)


@click.group()
def key() -> None:
    """Signing keys and trust; kept in your configuration directory, never in a store."""


@key.command()
@name_argument
@click.pass_obj
def generate(app: App, /, name: str) -> None:
    """Make an ed25519 key."""
    made = app.keyring.generate(name)
    _print(app, {**_document(made), "file": str(app.keyring.home / "keys" / f"{name}.pub")}, [
        f"{made.id}  {name}",
        f"give {app.keyring.home / 'keys' / name}.pub to those who are to trust it",
    ])  # fmt: skip


@key.command()
@click.argument("name", required=False)
@click.pass_obj
def show(app: App, /, name: str | None) -> None:
    """The keys that are known here; with a NAME, its public key as PEM."""
    known = [k for k in app.keyring.known() if name in (None, k.name)]
    if name is not None and not known:
        app.keyring.signer(name)  # raises what is wrong
    lines = [
        f"{k.id}  {k.name}  {'own' if k.own else 'trusted'}"
        + (f"  revoked: {k.revoked}" if k.revoked else "")
        for k in known
    ]
    if name is not None:
        lines += app.keyring.pem(known[0].key).splitlines()
    _print(app, {"keys": [_document(k) for k in known]}, lines)


@key.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", default="", help="What to call it here (default: the file's name).")
@click.pass_obj
def trust(app: App, /, file: Path, name: str) -> None:
    """Believe what the public key in FILE (PEM) signs.

    FILE may be what `key rotate` wrote: then the keys that one you believe vouches for.
    """
    if file.name.endswith(".json"):
        _trust_rotated(app, file)
        return
    made = app.keyring.trust(name or file.stem, app.keyring.read(file)[1])
    _print(app, _document(made), [f"{made.id}  {made.name}  trusted"])


@key.command()
@name_argument
@click.pass_obj
def rotate(app: App, /, name: str) -> None:
    """Sign with a new key from now on; the old one vouches for it."""
    old, new = app.keyring.rotate(name)
    file = app.keyring.rotation_file(name)
    _print(app, {"new": _document(new), "old": _document(old), "file": str(file)}, [
        f"{new.id}  {new.name}",
        f"{old.id}  {old.name}  still believed for what it signed",
        f"give {file} to those who trust the old one: `reprobuild key trust FILE`",
    ])  # fmt: skip


def _trust_rotated(app: App, file: Path) -> None:
    from reprobuild.cli.files import read_document

    made = app.keyring.trust_rotated(read_document(file, "E-KEY"))
    lines = [f"{k.id}  {k.name}  trusted" for k in made] or ["all of them are believed already"]
    _print(app, {"keys": [_document(k) for k in made]}, lines)


@key.command()
@click.argument("which", metavar="NAME-or-ID")
@click.option("--reason", default="revoked", help="Why.")
@click.pass_obj
def revoke(app: App, /, which: str, reason: str) -> None:
    """Believe a key no more, whatever it signed."""
    gone = app.keyring.revoke(which, reason)
    _print(app, _document(gone), [f"{gone.id}  {gone.name}  revoked: {gone.revoked}"])


def _document(public: PublicKey) -> dict[str, Any]:
    return {
        "key": public.key.hex(),
        "key_id": public.id,
        "name": public.name,
        "own": public.own,
        "revoked": public.revoked,
    }


def _print(app: App, document: Mapping[str, Any], lines: list[str]) -> None:
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    for line in lines:
        click.echo(line)
