"""release check-logs: a server's log against the release it should be of."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.cli.options import in_flake
from reprobuild.cli.releasing import documents
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reprobuild.app import App
    from reprobuild.core.documents.logs import Finding


@click.command("check-logs")
@click.argument("words", nargs=-1, required=True, metavar="[INSTALLABLE] FILE|-")
@click.option("--profile", metavar="NAME", help="The profile it was started with (default: first).")
@click.option(
    "--set", "given", multiple=True, metavar="NAME=VALUE", help="A setting it was started with."
)
@click.pass_obj
def check_logs(
    app: App, /, words: tuple[str, ...], profile: str | None, given: tuple[str, ...]
) -> None:
    """Check launch line, graph capture, KV size and source labels in a server's log."""
    from reprobuild.core.documents.logs import check_logs as check
    from reprobuild.core.documents.runbook import Served
    from reprobuild.core.profiles.resolve import resolve

    if len(words) > 2:
        raise ReprobuildError("E-USAGE", "name an installable and one FILE, or - for a pipe")
    file = words[-1]
    app, (installable,) = in_flake(app, (words[0] if len(words) == 2 else "",))
    made = documents(app, installable)
    name = profile or next(iter(made.served), "")
    if name not in made.served or made.served[name].profile.log is None:
        raise ReprobuildError(
            "E-USAGE",
            f"output {made.output} has no profile {name!r} that says what its log must have"
            if name
            else f"output {made.output} has no profile",
        )
    served = made.served[name]
    if given:
        environment = dict(text.partition("=")[::2] for text in given)
        served = Served(served.profile, resolve(served.profile, environment, name))
    found = check(_lines(file), made.facts, name, served, made.values)
    spoilt = [f for f in found if f.state == "invalidates"]
    missing = [f for f in found if f.state == "missing"]
    if app.json and not (spoilt or missing):
        rows = [asdict(finding) for finding in found]
        click.echo(json.dumps({"profile": name, "findings": rows}, indent=2))
    elif not app.json:
        for finding in found:
            _print(finding)
    if spoilt or missing:
        what = spoilt[0] if spoilt else missing[0]
        raise ReprobuildError(
            "E-LOG-CHECK",
            f"{what.check}: {what.said}" + ("; no performance comparison holds" if spoilt else ""),
            line=what.line or None,
            invalidates=[f"{f.check}: {f.said}" for f in spoilt] or None,
            missing=[f"{f.check}: {f.said}" for f in missing] or None,
        )


def _print(finding: Finding) -> None:
    mark = {"ok": "ok", "missing": "MISSING", "invalidates": "INVALIDATES"}[finding.state]
    place = f"line {finding.line}" if finding.line else ""
    click.echo(f"  {mark:<12} {finding.check:<20} {finding.said}  {place}".rstrip())


def _lines(file: str) -> Iterable[str]:
    """Lines, read as they come; bytes that are no UTF-8 are replaced."""
    if file == "-":
        for raw in sys.stdin.buffer:
            yield raw.decode("utf-8", "replace")
        return
    try:
        with Path(file).open("rb") as stream:
            for raw in stream:
                yield raw.decode("utf-8", "replace")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ReprobuildError("E-USAGE", f"{file} cannot be read: {reason}", file=file) from error
