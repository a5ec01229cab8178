"""An image in a registry, seen without its layers: manifest and config alone."""

from __future__ import annotations

import json
from typing import Any

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import TransferError
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.fetch.registry import MANIFEST_LIMIT, RegistrySource
from reprobuild.adapters.fetch.wanted import Place, Wanted, unreachable
from reprobuild.core.digest import Sha256
from reprobuild.core.image import (
    DOCKER_INDEX,
    INDEX,
    ImageFacts,
    facts,
    parse_index,
    parse_json,
    parse_manifest,
    sha256_of,
)
from reprobuild.core.redact import redact_reference
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter


def peek(downloads: Downloader, text: str, report: Reporter) -> tuple[ImageFacts, dict[str, Any]]:
    """The facts and the config's `config` object of `REGISTRY/REPOSITORY:TAG`.

    An index is followed to linux/amd64. Raises E-OCI-REFERENCE, E-OFFLINE, E-FETCH, E-IMAGE,
    E-FETCH-MISMATCH.
    """
    reference = ImageReference.parse(text)
    if reference.transport != "registry":
        shown = redact_reference(text)[:200]
        raise ReprobuildError("E-OCI-REFERENCE", f"{shown} names no registry", got=shown)
    source = RegistrySource(downloads, reference.host, reference.repository)
    wanted = reference.wanted
    for _ in range(4):
        data = _manifest(source, reference, wanted)
        document = parse_json(data, "the manifest")
        if document.get("mediaType") not in (INDEX, DOCKER_INDEX) and "manifests" not in document:
            break
        fitting = [d for d in parse_index(data) if d.platform in (("linux", "amd64"), ("", ""))]
        if len(fitting) != 1:
            raise ReprobuildError(
                "E-IMAGE", f"{text[:200]} has {len(fitting)} images for linux/amd64; one is needed"
            )
        wanted = str(fitting[0].digest)
    config, _ = parse_manifest(data)
    if config.size > MANIFEST_LIMIT:
        raise ReprobuildError("E-IMAGE", f"the config of {text[:200]} has {config.size} bytes")
    with source.blob(Wanted(f"the config of {reference}", config.digest, config.size), report) as f:
        body = f.read_bytes()
    known = facts(str(reference), sha256_of(data), data, body)
    run = json.loads(body).get("config")
    return known, run if isinstance(run, dict) else {}


def _manifest(source: RegistrySource, reference: ImageReference, wanted: str) -> bytes:
    try:
        data = source.manifest(wanted)
    except TransferError as error:
        place = Place(reference.url)
        raise unreachable(f"the image {reference}", [(place, error)]) from None
    if wanted.startswith("sha256:") and sha256_of(data) != Sha256.parse(wanted):
        raise ReprobuildError(
            "E-FETCH-MISMATCH",
            f"the registry answered {wanted} with {sha256_of(data)}",
            expected=wanted,
            got=str(sha256_of(data)),
        )
    return data
