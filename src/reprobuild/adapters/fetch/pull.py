"""An image of a registry as a layout directory, to be looked at: nothing goes into a store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import Http
from reprobuild.adapters.fetch.oci import (
    _json_object,
    _manifest,
    _parts,
    discover_image,
    source_of,
)
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Wanted
from reprobuild.core.image import OCI_LAYOUT, index_document, sha256_of
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter


def pull_layout(text: str, target: Path, settings: FetchSettings, report: Reporter) -> None:
    """Writes the linux/amd64 image that a registry reference names to the new directory `target`.

    Every blob is checked against its digest. Raises E-OCI-REFERENCE, E-OFFLINE, E-FETCH,
    E-FETCH-MISMATCH, E-IMAGE-WRITE.
    """
    reference = ImageReference.parse(text)
    downloads = Downloader(Http(settings))
    digest = discover_image(downloads, text, Path(), report)
    source = source_of(downloads, reference)
    data = _manifest(source, reference, str(digest))
    config, layers = _parts(_json_object(data, reference), reference)
    blobs = target / "blobs/sha256"
    try:
        blobs.mkdir(parents=True)
        for descriptor in dict.fromkeys([config, *layers]):
            wanted = Wanted(f"{reference} blob", descriptor.sha256, descriptor.size)
            with source.blob(wanted, report) as path:
                _take(path, blobs / descriptor.sha256.hex)
        (blobs / sha256_of(data).hex).write_bytes(data)
        index = index_document(data, reference=str(reference), architecture="amd64")
        (target / "index.json").write_bytes(index)
        (target / "oci-layout").write_bytes(OCI_LAYOUT)
    except OSError as error:
        raise ReprobuildError(
            "E-IMAGE-WRITE", f"{target} could not be written: {error.strerror}", file=str(target)
        ) from error


def _take(path: Path, to: Path) -> None:
    """A second name for the file where there can be one, else a copy."""
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)
