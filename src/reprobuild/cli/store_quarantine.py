"""store quarantine: actions that came out in two ways, and what is to be believed of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.store_words import duration
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.app.upkeep import Disagreement, Result


@click.command()
@click.option("--set-aside", metavar="RECORD", help="Take this result out of use; it is kept.")
@click.option("--restore", metavar="RECORD", help="Take it into use again.")
@click.option("--forget", metavar="RECORD", help="Drop a result that was set aside, for good.")
@click.pass_obj
def quarantine(app: App, /, set_aside: str | None, restore: str | None, forget: str | None) -> None:
    """List actions with more than one result, and what they differ in; settle them.

    While two results of an action are in use, `realize` uses neither and exits 6. RECORD is the
    beginning of a record's digest.
    """
    given = [word for word in (set_aside, restore, forget) if word is not None]
    if len(given) > 1:
        raise ReprobuildError("E-USAGE", "one decision at a time, please")
    for word in given:
        _check(word)
    store = app.store.quarantine
    if set_aside is not None:
        store.set_aside(set_aside)
    elif restore is not None:
        store.restore(restore)
    elif forget is not None:
        store.forget(forget)
    documents = [_document(app, found) for found in store.disagreements()]
    if app.json:
        click.echo(json.dumps({"actions": documents}, indent=2, sort_keys=True))
        return
    for document in documents:
        _say(document)
    if not documents:
        click.echo("no action has more than one result")


def _check(word: str) -> None:
    """Raises E-USAGE for what is no beginning of a record's digest that may be acted upon."""
    if not re.fullmatch(r"(blake3:)?[0-9a-f]{6,64}", word, re.IGNORECASE):
        raise ReprobuildError(
            "E-USAGE",
            f"{word!r} names no record: six to 64 hexadecimal digits of its digest do",
            hint="`reprobuild store quarantine` lists the records",
            got=word,
        )


def _document(app: App, found: Disagreement) -> dict[str, Any]:
    return {
        "action": found.action,
        "name": found.results[0].record.name,
        "results": [_result(result) for result in found.results],
        "settled": found.settled,
        "verdict": _verdict(app, found),
    }


def _result(result: Result) -> dict[str, Any]:
    record = result.record
    return {
        "drv": str(record.drv),
        "duration_ms": record.duration_ms,
        "isolation": record.isolation.value,
        "log": record.log,
        "outputs": {name: str(tree) for name, tree in sorted(record.outputs.items())},
        "record": result.name,
        "set_aside": result.set_aside,
    }


def _verdict(app: App, found: Disagreement) -> list[str]:
    """What the first result and the first that is different differ in."""
    first = found.results[0].record
    others = [r.record for r in found.results if dict(r.record.outputs) != dict(first.outputs)]
    if not others:
        return []
    try:
        return app.kernels.verdict(first.outputs, others[0].outputs).lines()
    except ReprobuildError as error:
        return [f"they cannot be compared: {error.message}"]


def _say(document: dict[str, Any]) -> None:
    state = "settled" if document["settled"] else "OPEN: neither is used"
    click.echo(f"{document['name'] or document['action'][:12]}  – {state}")
    for result in document["results"]:
        where = "set aside" if result["set_aside"] else "in use" if document["settled"] else "open"
        took = duration(result["duration_ms"])
        click.echo(f"  record {result['record'][:12]}  {where}, {result['isolation']}, took {took}")
        for name, tree in result["outputs"].items():
            click.echo(f"    {name}  {tree}")
    for line in document["verdict"]:
        click.echo(f"  {line}")
