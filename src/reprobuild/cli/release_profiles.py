"""release profiles: Compose files, and what a profile comes to in an environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.files import write_errors
from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.cli.releasing import documents
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@installable_argument
@click.option("--output-dir", "-d", metavar="DIR", default=".", help="Where the files go.")
@click.option("--profile", "wanted", metavar="NAME", help="This profile alone.")
@click.option(
    "--set", "given", multiple=True, metavar="NAME=VALUE",
    help="Write nothing: only check the profile with these settings, and show what follows.",
)  # fmt: skip
@click.pass_obj
def profiles(
    app: App, /, installable: str, output_dir: str, wanted: str | None, given: tuple[str, ...]
) -> None:
    """Write the Compose file of each serving profile."""
    directory = Path(output_dir)
    if not given:
        app.check_directory(directory, "-d")
    app, (name,) = in_flake(app, (installable,))
    made = documents(app, name)
    names = [wanted] if wanted else list(made.served)
    if given:
        environment = _environment(given)
        document: dict[str, Any] = {n: made.check_environment(n, environment) for n in names}
        if app.json:
            click.echo(json.dumps({"profiles": document}, indent=2, sort_keys=True))
            return
        for profile, facts in document.items():
            click.echo(profile)
            for key, value in facts["settings"].items():
                derived = facts["derived"].get(key)
                click.echo(f"  {key}={'' if value is None else value}"
                           + (f"  (from {derived})" if derived else ""))  # fmt: skip
        return
    texts = {made.served[n].profile.file or f"{n}.yml": made.compose(n) for n in names
             if n in made.served or made.compose(n)}  # fmt: skip
    for file in texts:
        app.check_file(directory / file, "-d")
    if texts:
        with write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        app.resolver.replace_file(directory / file, text.encode())
    if app.json:
        click.echo(json.dumps({"files": sorted(texts)}, indent=2))
        return
    for file in texts:
        click.echo(str(directory / file))
    if not texts:
        click.echo(f"output {made.output} has no serving profiles: nothing to write", err=True)


def _environment(given: tuple[str, ...]) -> dict[str, str]:
    out: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ReprobuildError("E-USAGE", f"--set {text!r}: say NAME=VALUE", got=text)
        out[key] = value
    return out
