"""image: what can be done with a finished image. Never builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.imagesides import opened
from reprobuild.core.wording import plural, size

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.image import ImageFacts
    from reprobuild.core.provenance import Claim

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
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A signed provenance must be there, by this public key.",
)
@click.option(
    "--attestation",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An attestation, by --key or a key you trust; else those beside the file, or the "
    "registry's.",
)
@click.pass_obj
def verify(
    app: App, /, side: str, sources: bool, keys: tuple[Path, ...], files: tuple[Path, ...]
) -> None:
    """Check an image from nothing but itself: layers, files, labels, sources, the statement."""
    from reprobuild.cli import imageattest

    claims: list[Claim] = []
    with opened(app, side) as image:
        result = app.images.verify(image.path, reference=image.reference)
        policy = imageattest.policy_of(app, image)
        signed = bool(keys or files) or (
            policy is not None and bool(policy.signers or policy.gates)
        )
        attachments = imageattest.read_files(files or imageattest.beside(image)) if signed else []
        if signed and image.remote:
            attachments += app.images.attachments(image.remote, result.facts)
        if keys or files:
            claims = imageattest.checked(app, image, result.facts, attachments, keys)
        imageattest.hold_to_policy(app, image, result.facts, attachments)
    facts = result.facts
    document = {
        **facts.document(),
        "attestations": imageattest.summary(claims),
        "components": result.components,
        "files": result.files,
        "sources": result.sources,
        "verified": True,
    }
    lines = [
        *_lines(facts),
        f"holds: {plural(len(facts.layers), 'layer')}, {plural(result.components, 'component')}, "
        f"{plural(result.files, 'file')} and their labels",
    ]
    lines += [f"  signed by {claim.signer}: {claim.predicate_type}" for claim in claims]
    if sources:
        lines += [
            f"  {name}: {row['equal']} of {row['installed']} installed files are as tracked, of "
            f"{row['files']} tracked in {row['integration_tree']}"
            for name, row in result.sources.items()
        ]
    _print(app, document, lines)


@image.command()
@side_argument
@click.option("--key", default="default", help="The name of your key (default: default).")
@click.option("--output", "-o", required=True, metavar="STEM", help="Files STEM.provenance…")
@click.pass_obj
def attest(app: App, /, side: str, key: str, output: str) -> None:
    """Write signed provenance (SLSA v1) and SBOMs (SPDX, CycloneDX) of an image."""
    from reprobuild.cli import imageattest

    with opened(app, side) as image:
        facts = app.images.verify(image.path, reference=image.reference).facts
        attachments = imageattest.made(app, image, facts, key)
    paths = imageattest.write_files(app, attachments, Path(output))
    _print(app, {**facts.document(), "paths": [str(p) for p in paths]}, [str(p) for p in paths])


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
    if form != "oci-dir":
        app.check_file(target, "-o")
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
@click.option("--attest", "signing", is_flag=True, help="Attach signed provenance and SBOMs.")
@click.option("--key", default="default", help="The name of the key that signs them.")
@click.option(
    "--attach",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Attach an attestation that was made elsewhere.",
)
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
    signing: bool,
    key: str,
    files: tuple[Path, ...],
    accepted: tuple[str, ...],
) -> None:
    """Send it to a registry, with the logins of `docker login`."""
    from reprobuild.cli import imageattest
    from reprobuild.cli.imagelicences import settle_licences

    with opened(app, side) as image:
        facts = app.images.inspect(image.path)
        target = reference or facts.reference
        attachments = imageattest.read_files(files)
        if signing:
            attachments = [*imageattest.made(app, image, facts, key), *attachments]
        imageattest.hold_to_policy(app, image, facts, attachments)
        settle_licences(app, image, target, accepted)
        answer = app.images.push(
            image.path,
            target,
            dirty=dirty,
            tags=tags,
            mount_from=mount_from,
            attachments=attachments,
        )
    counted = ("uploaded", "mounted", "present", "sent")
    numbers = {key: int(answer[key]) for key in counted}
    document = {**facts.document(), **answer, **numbers, "tags": list(tags)}
    line = (
        f"{answer['reference']}  {answer['manifest_digest']}  {size(numbers['sent'])} sent, "
        f"{plural(numbers['uploaded'], 'blob')} uploaded, {numbers['mounted']} mounted, "
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
        length = size(layer.size)
        lines.append(f"  layer      {layer.digest}  {length:>10}  {layer.component or 'base'}")
    lines += [f"  label      {key}={value}" for key, value in sorted(facts.labels.items())]
    return lines


def _print(app: App, document: Mapping[str, Any], lines: list[str]) -> None:
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False))
        return
    for line in lines:
        click.echo(line)
