"""OCI image layouts on the disk: in a directory, or inside a tar archive."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol, Self, cast

from reprobuild.core.digest import Sha256
from reprobuild.core.image import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    INDEX,
    MANIFEST,
    REF_NAME,
    Descriptor,
    ImageFacts,
    facts,
    parse_index,
    parse_json,
    parse_manifest,
    sha256_of,
)
from reprobuild.errors import ReprobuildError

MAX_DOCUMENT = 8 * 2**20
CHUNK = 2**20


class LayoutFiles(Protocol):
    """The files of a layout, by their paths inside it."""

    def open(self, name: str) -> BinaryIO:
        """A reader; raises E-IMAGE when there is no such file."""
        ...

    def size(self, name: str) -> int:
        """In bytes; raises E-IMAGE when there is no such file."""
        ...


class DirectoryFiles:
    """A layout in a directory. Links in it are not followed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, name: str) -> Path:
        path = self.root / name
        if path.is_symlink() or not path.is_file():
            raise ReprobuildError("E-IMAGE", f"{self.root} holds no {name}", file=str(self.root))
        return path

    def open(self, name: str) -> BinaryIO:
        """See `LayoutFiles`."""
        return self._path(name).open("rb")

    def size(self, name: str) -> int:
        """See `LayoutFiles`."""
        return self._path(name).stat().st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Holds nothing."""


class ArchiveFiles:
    """A layout inside a tar archive (not compressed as a whole)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = tarfile.open(path, "r:")  # noqa: SIM115
            members = self._archive.getmembers()
        except (tarfile.TarError, EOFError) as error:
            raise ReprobuildError(
                "E-IMAGE", f"{path} is no tar archive: {error}", file=str(path)
            ) from error
        self._members = {m.name.removeprefix("./"): m for m in members if m.isreg()}

    def _member(self, name: str) -> tarfile.TarInfo:
        if name not in self._members:
            raise ReprobuildError("E-IMAGE", f"{self.path} holds no {name}", file=str(self.path))
        return self._members[name]

    def open(self, name: str) -> BinaryIO:
        """See `LayoutFiles`."""
        return cast(BinaryIO, self._archive.extractfile(self._member(name)))

    def size(self, name: str) -> int:
        """See `LayoutFiles`."""
        return self._member(name).size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()


def open_layout(path: Path) -> AbstractContextManager[LayoutFiles]:
    """The layout at `path`, a directory or an archive; raises E-IMAGE for anything else."""
    if path.is_dir():
        return DirectoryFiles(path)
    if path.is_file():
        return ArchiveFiles(path)
    raise ReprobuildError("E-IMAGE", f"there is no image layout at {path}", file=str(path))


def blob_name(digest: Sha256) -> str:
    """Where a layout keeps a blob."""
    return f"blobs/sha256/{digest.hex}"


def _document(files: LayoutFiles, name: str) -> bytes:
    if files.size(name) > MAX_DOCUMENT:
        raise ReprobuildError("E-IMAGE", f"{name} is too large for a document")
    with files.open(name) as source:
        return source.read(MAX_DOCUMENT)


def _blob_document(files: LayoutFiles, descriptor: Descriptor) -> bytes:
    data = _document(files, blob_name(descriptor.digest))
    if sha256_of(data) != descriptor.digest:
        raise ReprobuildError(
            "E-IMAGE",
            f"the blob {descriptor.digest} holds {sha256_of(data)}",
            expected=str(descriptor.digest),
            got=str(sha256_of(data)),
        )
    return data


def read_layout(files: LayoutFiles, reference: str = "") -> ImageFacts:
    """What the one image of a layout (the one called `reference`, where there are several) says
    about itself; raises E-IMAGE. Layers are not read."""
    parse_json(_document(files, "oci-layout"), "oci-layout")
    found = parse_index(_document(files, "index.json"))
    if reference:
        found = [d for d in found if d.annotations.get(REF_NAME) == reference] or found
    for _ in range(4):
        linux = [d for d in found if d.platform in (("linux", "amd64"), ("", ""))]
        if len(linux) != 1:
            raise ReprobuildError("E-IMAGE", f"the layout holds {len(linux)} images, not one")
        descriptor = linux[0]
        reference = descriptor.annotations.get(REF_NAME, reference)
        if descriptor.media_type not in (INDEX, DOCKER_INDEX):
            break
        found = parse_index(_blob_document(files, descriptor))
    if descriptor.media_type not in (MANIFEST, DOCKER_MANIFEST):
        raise ReprobuildError("E-IMAGE", f"the layout holds a {descriptor.media_type[:80]!r}")
    manifest = _blob_document(files, descriptor)
    config, _ = parse_manifest(manifest)
    return facts(reference, descriptor.digest, manifest, _blob_document(files, config))


def blobs_of(image: ImageFacts, files: LayoutFiles) -> Iterator[tuple[str, int]]:
    """Names and sizes of every blob that belongs to the image, sorted by name, once each."""
    digests = {image.manifest_digest, image.config_digest, *(la.digest for la in image.layers)}
    for digest in sorted(digests):
        yield blob_name(digest), files.size(blob_name(digest))
