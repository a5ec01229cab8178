"""`reprobuild init`: a flake to start from, empty or out of published forms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.integration.imported import Imported, ImportedSource

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("more", nargs=-1, type=_FILE, metavar="[FILE]...")
@click.option(
    "--from-lock",
    "locks",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="A published integration.lock.json or source.lock.json.",
)
@click.option(
    "--from-manifest",
    "manifests",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="A published composition manifest.",
)
@click.option(
    "--from-contract",
    "contract",
    type=_FILE,
    metavar="FILE",
    help="A source merge contract, as text.",
)
@click.option(
    "--forge",
    default="",
    metavar="URL",
    help="Where a contract's repositories live, such as https://github.com/NAME.",
)
@click.option("--output", "output_name", default="", metavar="NAME", help="The output's name.")
@click.pass_obj
def init(
    app: App,
    more: tuple[Path, ...],
    locks: tuple[Path, ...],
    manifests: tuple[Path, ...],
    contract: Path | None,
    forge: str,
    output_name: str,
) -> None:
    """Write flake-like.toml, and a file for each component, into this directory (or -C DIR).

    Existing files are never overwritten. FILEs are further ones of the form that was named:
    `init --from-lock */integration.lock.json`.
    """
    if more and bool(locks) == bool(manifests):
        raise ReprobuildError(
            "E-USAGE",
            f"is {more[0]} a lock or a manifest? name its form",
            hint="write --from-lock or --from-manifest before each file",
        )
    locks += more if locks else ()
    manifests += more if manifests else ()
    imported = _gather(locks, manifests, contract, forge, output_name)
    directory = (app.settings.directory or Path.cwd()).absolute()
    written = app.resolver.new_project(directory, imported)
    if app.json:
        click.echo(json.dumps({"output": imported.output, "written": written}, indent=2))
        return
    for name in written:
        click.echo(f"wrote {name}")
    click.echo(
        "next: `reprobuild lock`"
        if imported.sources
        else f"next: declare an input and an output in {written[0]}, which shows how"
    )


def _gather(
    locks: tuple[Path, ...],
    manifests: tuple[Path, ...],
    contract: Path | None,
    forge: str,
    output_name: str,
) -> Imported:
    from reprobuild.cli.files import read_document
    from reprobuild.core.derivation import check_component_name
    from reprobuild.core.integration.contract import parse_contract
    from reprobuild.core.integration.imported import (
        Imported,
        from_contract,
        from_lock,
        from_manifest,
    )
    from reprobuild.core.integration.manifest import parse_manifest
    from reprobuild.core.integration.upstream import parse_lock

    sources: list[ImportedSource] = []
    imported = Imported("release", ())
    if contract is not None:
        data = read_document(contract, "E-CONTRACT")
        if forge:
            from reprobuild.core.integration.address import check_stated

            check_stated(forge)
        imported = from_contract(parse_contract(data, str(contract)), contract.name, forge)
        sources += imported.sources
    for path in locks:
        data = read_document(path, "E-UPSTREAM-LOCK")
        sources.append(from_lock(parse_lock(data, str(path)), path.name))
    for path in manifests:
        data = read_document(path, "E-MANIFEST")
        sources.append(from_manifest(parse_manifest(data, str(path)), path.name))
    names = [s.component for s in sources]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ReprobuildError(
            "E-USAGE",
            f"two of the files are about {twice[0]}; an output has one source a component",
            component=twice[0],
        )
    name = check_component_name(output_name) if output_name else imported.output
    return replace(imported, output=name, sources=tuple(sources))
