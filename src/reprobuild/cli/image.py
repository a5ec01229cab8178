"""image: what can be done with a finished image. Never builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import in_flake
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.image import ImageFacts

FILE = "file:"
side_argument = click.argument(
    "side", default="", required=False, metavar="[INSTALLABLE|file:PATH]"
)


@click.group()
def image() -> None:
    """Look at an image, check it, save it, load it into Docker, push it to a registry."""


@image.command()
@side_argument
@click.pass_obj
def inspect(app: App, /, side: str) -> None:
    """Reference, digests, layers and labels."""
    layout = _layout(app, side)
    facts = app.images.inspect(layout)
    _print(app, {**facts.document(), "path": str(layout)}, _lines(facts))


@image.command()
@side_argument
@click.pass_obj
def verify(app: App, /, side: str) -> None:
    """Read it all again: digests, diffIDs, and labels against the statement inside."""
    layout = _layout(app, side)
    facts, components = app.images.verify(layout)
    document = {**facts.document(), "components": components, "verified": True}
    _print(app, document, [*_lines(facts), f"holds: {len(facts.layers)} layers, {components} "
                           "components and their labels"])  # fmt: skip


@image.command()
@side_argument
@click.option("--output", "-o", required=True, metavar="PATH", help="Where to.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["archive", "oci-dir"]),
    default="archive",
    help="An archive that every engine reads (default), or an OCI layout directory.",
)
@click.option("--as", "reference", default="", metavar="REPOSITORY:TAG", help="Its name there.")
@click.pass_obj
def save(app: App, /, side: str, output: str, form: str, reference: str) -> None:
    """Write it to a file: `docker load`, `podman load` and `skopeo` read it."""
    target = Path(output)
    layout = _layout(app, side)
    facts = app.images.save(layout, target, reference=reference, directory=form == "oci-dir")
    document = {
        **facts.document(),
        "reference": reference or facts.reference,
        "path": str(target),
    }
    _print(app, document, [f"{reference or facts.reference}  {target}"])


@image.command()
@side_argument
@click.option("--as", "reference", default="", metavar="REPOSITORY:TAG", help="Its name there.")
@click.pass_obj
def load(app: App, /, side: str, reference: str) -> None:
    """Load it into the Docker daemon (DOCKER_HOST), and check that it is the same there."""
    layout = _layout(app, side)
    answer = app.images.load(layout, reference=reference)
    facts = app.images.inspect(layout)
    document = {**facts.document(), **answer}
    _print(app, document, [f"{answer['reference']}  {answer['image_id']}"])


@image.command()
@side_argument
@click.option("--to", "reference", default="", metavar="REGISTRY/REPOSITORY:TAG", help="Where to.")
@click.option("--dirty", is_flag=True, help="Even when it was made from overridden inputs.")
@click.pass_obj
def push(app: App, /, side: str, reference: str, dirty: bool) -> None:
    """Send it to a registry, with the logins of `docker login`."""
    layout = _layout(app, side)
    facts = app.images.inspect(layout)
    answer = app.images.push(layout, reference or facts.reference, offline=app.offline, dirty=dirty)
    numbers = {key: int(answer[key]) for key in ("uploaded", "present")}
    document = {**facts.document(), **answer, **numbers}
    _print(app, document, [f"{answer['reference']}  {answer['manifest_digest']}"])


def _layout(app: App, side: str) -> Path:
    """The layout that a side means; raises E-USAGE, E-NOT-REALIZED."""
    if side.startswith(FILE):
        return Path(side.removeprefix(FILE))
    from reprobuild.cli.evaluation import evaluate

    app, names = in_flake(app, (side,))
    _, (target,) = evaluate(app, names)
    plan = target.evaluation.image
    if plan is None or target.installable.component is not None:
        raise ReprobuildError(
            "E-USAGE",
            f"{target.installable} is no image",
            hint="name an output that has [outputs.NAME.image], or file:PATH",
        )
    record = app.store.realized(plan.located.drv)
    tree = record.outputs.get(plan.located.output) if record is not None else None
    if tree is None or not app.store.contains(tree):
        raise ReprobuildError(
            "E-NOT-REALIZED",
            f"the image of {target.installable} is not in the store",
            hint=f"run `reprobuild realize {target.installable}` first",
            drv=str(plan.located.drv),
        )
    return app.store.materialise(tree)


def _lines(facts: ImageFacts) -> list[str]:
    lines = [
        f"image {facts.reference}",
        f"  config     {facts.config_digest}",
        f"  manifest   {facts.manifest_digest}",
    ]
    for layer in facts.layers:
        size = layer.size / 2**20
        lines.append(f"  layer      {layer.digest}  {size:8.2f} MiB  {layer.component or 'base'}")
    lines += [f"  label      {key}={value}" for key, value in sorted(facts.labels.items())]
    return lines


def _print(app: App, document: Mapping[str, Any], lines: list[str]) -> None:
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False))
        return
    for line in lines:
        click.echo(line)
