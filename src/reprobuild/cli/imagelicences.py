"""Licences that forbid redistribution: shown, and asked for once, before an image is pushed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.cli.imagesides import Side

MOST_NAMES = 5


def settle_licences(app: App, image: Side, target: str, accepted: tuple[str, ...]) -> None:
    """Returns when every licence that forbids redistribution is accepted for the target's registry:
    by `accepted`, by an earlier answer, or by the person at the terminal, whose answer is kept.

    Raises E-LICENCE. An image without a statement says nothing of licences.
    """
    from reprobuild.core.licences import restricted

    try:
        statement = app.images.statement(image.path, reference=image.reference)
    except ReprobuildError as error:
        if error.code != "E-IMAGE-VERIFY":
            raise
        return
    found = restricted(statement)
    if not found:
        return
    where = target.partition("/")[0]
    file = app.settings.state_dir / "accepted-licences.json"
    try:
        known = json.loads(file.read_text("utf-8"))
        answered = set(known.get(where, []))
    except (OSError, ValueError, AttributeError, TypeError):
        known, answered = {}, set()
    for licence in found:
        if licence.licence in answered:
            continue
        named = ", ".join(licence.names[:MOST_NAMES])
        more = f" and {len(licence.names) - MOST_NAMES} more" if licence.names[MOST_NAMES:] else ""
        says = f"{licence.licence} forbids redistribution; under it are {named}{more}"
        if licence.licence not in accepted and not _asked(app, says, where):
            raise ReprobuildError(
                "E-LICENCE",
                says,
                hint=f"if you may push it to {where}, say --accept-licence '{licence.licence}'",
                licence=licence.licence,
                packages=list(licence.names),
            )
        answered.add(licence.licence)
    known = {**(known if isinstance(known, dict) else {}), where: sorted(answered)}
    app.images.write(file, json.dumps(known, indent=2, sort_keys=True).encode() + b"\n")


def _asked(app: App, says: str, where: str) -> bool:
    if app.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    click.echo(says, err=True)
    return click.confirm(f"May you push it to {where}?", default=False, err=True)
