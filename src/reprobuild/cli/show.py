"""show: what there is, by name and digest. Never builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.engine.evaluate import Evaluator

_DIGEST = "blake3:"
_OPEN = ("E-OUTPUT-OPEN", "E-LOCK-MISSING", "E-LOCK-STALE")


@click.command()
@installable_argument
@click.pass_obj
def show(app: App, /, installable: str) -> None:
    """Outputs and components with their drv digests, and image references.

    Instead of a name, a drv digest as an image's labels carry it: shows what it is of.
    """
    from reprobuild.core.installable import NO_OUTPUTS, parse_installable

    app, (name,) = in_flake(app, (installable,))
    flake = app.project.flake
    if name.startswith(_DIGEST):
        _meant(app, name)
        return
    wanted = [parse_installable(name, flake).output] if name else sorted(flake.outputs)
    outputs = {output: _output(app, output) for output in wanted}
    if app.json:
        click.echo(json.dumps({"outputs": outputs}, indent=2, sort_keys=True))
        return
    if not outputs:
        click.echo(f"the flake declares no outputs: {NO_OUTPUTS}", err=True)
    for output, facts in outputs.items():
        mark = "  (default)" if output == flake.default else ""
        click.echo(f"{output}{mark}  {_named(facts)}")
        if facts.get("reference"):
            click.echo(f"  {facts['reference']}")
        if "open" in facts:
            click.echo(f"  open: {facts['open']}")
        for component, entry in facts["components"].items():
            click.echo(f"  {component:<20} {entry['version'] or '':<12} {entry['drv'] or 'open'}")
            if entry.get("image_drv"):
                click.echo(f"  {'':<20} {'in images':<12} {entry['image_drv']}")


def _named(facts: Mapping[str, Any]) -> str:
    """What names an output: its image, where it is to have one and nothing is open."""
    return facts["drv"] or ("open" if "open" in facts else "no image")


def _meant(app: App, text: str) -> None:
    """Every output and component whose drv, or label, begins so; raises E-UNKNOWN-INSTALLABLE."""
    found: list[dict[str, str]] = []
    for output in sorted(app.project.flake.outputs):
        facts = _output(app, output)
        rows = [(output, "image", facts["drv"])]
        for name, entry in facts["components"].items():
            rows.append((f"{output}.{name}", "component", entry["drv"]))
            rows.append((f"{output}.{name}", "in images", entry.get("image_drv")))
        found += [
            {"installable": what, "role": role, "drv": drv}
            for what, role, drv in rows
            if drv and drv.startswith(text)
        ]
    if not found:
        raise ReprobuildError(
            "E-UNKNOWN-INSTALLABLE",
            f"{text[:80]} is the drv digest of no output and no component here",
            got=text[:80],
            hint="`reprobuild why OUTPUT DIGEST` looks among all derivations behind an output",
        )
    if app.json:
        click.echo(json.dumps({"found": found}, indent=2, sort_keys=True))
        return
    for row in found:
        click.echo(f"{row['installable']}  ({row['role']})  {row['drv']}")


def _output(app: App, output: str) -> dict[str, Any]:
    from reprobuild.cli.evaluation import evaluator_of
    from reprobuild.core.graph import Graph

    evaluator = evaluator_of(app, output, Graph())
    try:
        evaluation = evaluator.evaluate()
        app.check_inputs(evaluator.used, output)
    except ReprobuildError as error:
        if error.code not in _OPEN:
            raise
        return _stated(app, evaluator, output, _said(error))
    image = evaluation.image
    components: dict[str, dict[str, str]] = {}
    for name, place in evaluation.components.items():
        components[name] = {"drv": str(place.drv), "version": evaluator.version(name)}
        if image is not None and name in image.stated:
            components[name]["image_drv"] = str(image.stated[name])
    return {
        "components": components,
        "drv": str(image.located.drv) if image else None,
        "labels": dict(image.labels) if image else {},
        "reference": image.reference if image else None,
    }


def _said(error: ReprobuildError) -> str:
    """Why it is open; where the lock alone is behind, also what to do about it."""
    stale = error.code in ("E-LOCK-MISSING", "E-LOCK-STALE")
    return f"{error.message}; {error.hint}" if stale else error.message


def _stated(app: App, evaluator: Evaluator, output: str, why: str) -> dict[str, Any]:
    """What is known of an open output: the reference that its stated trees give, and the
    components that are not open themselves."""
    from reprobuild.core.documents.facts import release_facts

    project = app.project
    components: dict[str, Any] = {}
    for name in project.flake.outputs[output].components:
        try:
            drv = str(evaluator.component(name).drv)
        except ReprobuildError as problem:
            if problem.code not in _OPEN:
                raise
            components[name] = {"drv": None, "open": _said(problem), "version": ""}
            continue
        components[name] = {"drv": drv, "version": evaluator.version(name)}
    reference = None
    if project.flake.outputs[output].release is not None:
        facts = release_facts(project.flake, project.components, project.lock, output)
        reference = facts.reference or None
    return {"components": components, "drv": None, "open": why, "reference": reference}
