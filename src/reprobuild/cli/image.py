"""image: what can be done with a finished image. Never builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.imagesides import opened

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.image import ImageFacts

side_argument = click.argument(
    "side",
    default="",
    required=False,
    metavar="[INSTALLABLE|file:PATH|docker:REF|registry:REF]",
)


@click.group()
def image() -> None:
    """Look at an image, check it, save it, load it into Docker, push it to a registry."""


@image.command()
@side_argument
@click.pass_obj
def inspect(app: App, /, side: str) -> None:
    """Reference, digests, layers and labels."""
    with opened(app, side) as image:
        facts = app.images.inspect(image.path)
    _print(app, {**facts.document(), "path": str(image.path)}, _lines(facts))


@image.command()
@side_argument
@click.option("--sources", is_flag=True, help="Say how much of each source tree is installed.")
@click.pass_obj
def verify(app: App, /, side: str, sources: bool) -> None:
    """Check an image from nothing but itself: layers, files, labels, sources, the statement."""
    with opened(app, side) as image:
        result = app.images.verify(image.path, reference=image.reference)
    facts = result.facts
    document = {
        **facts.document(),
        "components": result.components,
        "files": result.files,
        "sources": result.sources,
        "verified": True,
    }
    lines = [
        *_lines(facts),
        f"holds: {len(facts.layers)} layers, {result.components} components, {result.files} files "
        "and their labels",
    ]
    if sources:
        lines += [
            f"  {name}: {row['equal']} of {row['installed']} installed files are as tracked, of "
            f"{row['files']} tracked in {row['integration_tree']}"
            for name, row in result.sources.items()
        ]
    _print(app, document, lines)


@image.command()
@side_argument
@click.option("--output", "-o", required=True, metavar="PATH", help="Where to.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["archive", "oci-dir", "oci-archive", "docker-archive"]),
    default="archive",
    help="An archive that every engine reads (default), an OCI layout directory, or an archive of "
    "one form alone.",
)
@click.option("--as", "reference", default="", metavar="REPOSITORY:TAG", help="Its name there.")
@click.pass_obj
def save(app: App, /, side: str, output: str, form: str, reference: str) -> None:
    """Write it to a file: `docker load`, `podman load` and `skopeo` read it."""
    target = Path(output)
    with opened(app, side) as image:
        facts = app.images.save(image.path, target, reference=reference, form=form)
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
    with opened(app, side) as image:
        answer = app.images.load(image.path, reference=reference)
        facts = app.images.inspect(image.path)
    document = {**facts.document(), **answer}
    _print(app, document, [f"{answer['reference']}  {answer['image_id']}"])


@image.command()
@side_argument
@click.option("--to", "reference", default="", metavar="REGISTRY/REPOSITORY:TAG", help="Where to.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="One more tag there.")
@click.option(
    "--mount-from", multiple=True, metavar="REPOSITORY", help="Where the registry has layers."
)
@click.option("--dirty", is_flag=True, help="Even when it was made from overridden inputs.")
@click.option(
    "--accept-licence",
    "accepted",
    multiple=True,
    metavar="LICENCE",
    help="Push although this licence forbids redistribution; remembered for this registry.",
)
@click.pass_obj
def push(
    app: App,
    /,
    side: str,
    reference: str,
    tags: tuple[str, ...],
    mount_from: tuple[str, ...],
    dirty: bool,
    accepted: tuple[str, ...],
) -> None:
    """Send it to a registry, with the logins of `docker login`."""
    from reprobuild.cli.imagelicences import settle_licences

    with opened(app, side) as image:
        facts = app.images.inspect(image.path)
        target = reference or facts.reference
        settle_licences(app, image, target, accepted)
        answer = app.images.push(image.path, target, dirty=dirty, tags=tags, mount_from=mount_from)
    counted = ("uploaded", "mounted", "present", "sent")
    numbers = {key: int(answer[key]) for key in counted}
    document = {**facts.document(), **answer, **numbers, "tags": list(tags)}
    line = (
        f"{answer['reference']}  {answer['manifest_digest']}  {numbers['sent']} bytes sent, "
        f"{numbers['uploaded']} blobs uploaded, {numbers['mounted']} mounted, "
        f"{numbers['present']} there already"
    )
    _print(app, document, [line])


def _lines(facts: ImageFacts) -> list[str]:
    lines = [
        f"image {facts.reference}",
        f"  config     {facts.config_digest}",
        f"  manifest   {facts.manifest_digest if facts.manifest_known else 'not kept here'}",
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
