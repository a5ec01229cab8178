"""Image archives: one file that every engine reads.

The archive is an OCI layout (`index.json`) and, over the same blobs, what `docker save` writes
(`manifest.json`): engines before containerd's image store read the one, all others the other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from reprobuild.adapters.oci.layout import LayoutFiles, blob_name, blobs_of
from reprobuild.adapters.places import TEMPORARY, check_replaceable
from reprobuild.core.encoding import Value, encode
from reprobuild.core.image import (
    OCI_LAYOUT,
    ImageFacts,
    index_document,
)
from reprobuild.core.imagetar import BLOCK, DIRECTORY, END, REGULAR, Attributes, header, pad
from reprobuild.errors import ReprobuildError

CHUNK = 2**20
BOTH = ("oci", "docker")
_FILE = Attributes(0o644, mtime=1)
_DIRECTORY = Attributes(0o755, mtime=1)


def docker_manifest(image: ImageFacts, reference: str) -> bytes:
    """`manifest.json` of a `docker save` archive, over the layout's own blobs."""
    entry: dict[str, Value] = {
        "Config": blob_name(image.config_digest),
        "Layers": [blob_name(layer.digest) for layer in image.layers],
        "RepoTags": [reference] if reference else [],
    }
    return encode([entry])


def _index(files: LayoutFiles, image: ImageFacts, reference: str) -> bytes:
    with files.open(blob_name(image.manifest_digest)) as source:
        manifest = source.read()
    return index_document(manifest, reference=reference, architecture=image.architecture)


def _verified(files: LayoutFiles, name: str) -> Iterator[bytes]:
    """A blob's bytes; raises E-IMAGE-VERIFY at their end when they are not what it is called."""
    digest = hashlib.sha256()
    with files.open(name) as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            yield chunk
    expected = name.rpartition("/")[2]
    if digest.hexdigest() != expected:
        raise ReprobuildError(
            "E-IMAGE-VERIFY",
            f"the blob {expected} of the image is damaged",
            expected=expected,
            got=digest.hexdigest(),
        )


def archive_pieces(
    files: LayoutFiles, image: ImageFacts, reference: str, forms: Collection[str] = BOTH
) -> Iterator[bytes]:
    """The archive's bytes: a function of the image, the reference and the `forms` ("oci", "docker")
    alone; raises E-IMAGE-VERIFY on the way when a blob is damaged."""
    yield header(DIRECTORY, b"blobs", _DIRECTORY)
    yield header(DIRECTORY, b"blobs/sha256", _DIRECTORY)
    for name, size in blobs_of(image, files):
        yield header(REGULAR, name.encode(), _FILE, size=size)
        yield from _verified(files, name)
        yield bytes(-size % BLOCK)
    for name, form, data in (
        ("index.json", "oci", _index(files, image, reference)),
        ("manifest.json", "docker", docker_manifest(image, reference)),
        ("oci-layout", "oci", OCI_LAYOUT),
    ):
        if form not in forms:
            continue
        yield header(REGULAR, name.encode(), _FILE, size=len(data)) + pad(data)
    yield END


def write_archive(
    files: LayoutFiles,
    image: ImageFacts,
    reference: str,
    target: Path,
    forms: Collection[str] = BOTH,
) -> int:
    """Writes the archive to `target`, whole or not at all; returns its size in bytes.

    Raises OSError's own kinds for what the disk refuses; an existing file is replaced at the end.
    """
    check_replaceable(target)
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=target.parent)
    temporary = Path(name)
    try:
        size = 0
        with os.fdopen(descriptor, "wb") as out:
            for piece in archive_pieces(files, image, reference, forms):
                out.write(piece)
                size += len(piece)
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(0o644)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return size


def write_directory(files: LayoutFiles, image: ImageFacts, reference: str, target: Path) -> None:
    """Writes the layout to the directory `target`, which must not exist yet; whole or not at all.

    Raises E-USAGE when `target` exists.
    """
    if target.exists() or target.is_symlink():
        raise ReprobuildError("E-USAGE", f"{target} exists already", hint="name a new directory")
    work = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=target.parent))
    try:
        (work / "blobs/sha256").mkdir(parents=True)
        for name, _ in blobs_of(image, files):
            with (work / name).open("wb") as out:
                for chunk in _verified(files, name):
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
        (work / "index.json").write_bytes(_index(files, image, reference))
        (work / "oci-layout").write_bytes(OCI_LAYOUT)
        for directory in (work, work / "blobs", work / "blobs/sha256"):
            directory.chmod(0o755)
        work.replace(target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
