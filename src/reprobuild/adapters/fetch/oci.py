"""Images: which manifest a reference stands for, and an image as an OCI layout in the store."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from reprobuild.adapters.fetch.dockersaved import SavedSource, daemon_archive
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.filetree import add_file, text
from reprobuild.adapters.fetch.http import TransferError
from reprobuild.adapters.fetch.ocilayout import ArchiveSource, LayoutSource
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.fetch.registry import RegistrySource
from reprobuild.adapters.fetch.wanted import Place, Wanted, unreachable
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value, encode
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Reporter

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_MAX_DEPTH = 3


class ImageSource(Protocol):
    """Where manifests and blobs come from."""

    def manifest(self, reference: str) -> bytes:
        """The manifest or index of a tag or digest, unverified; raises TransferError."""
        ...

    def blob(self, wanted: Wanted, report: Reporter) -> AbstractContextManager[Path]:
        """The verified blob as a file, for the `with` block."""
        ...


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One blob of an image; `size` in bytes."""

    sha256: Sha256
    size: int


def source_of(downloads: Downloader, reference: ImageReference) -> ImageSource:
    """The source that a reference names."""
    if reference.transport == "oci":
        return LayoutSource(downloads, reference.path)
    if reference.transport == "oci-archive":
        return ArchiveSource(downloads, reference.path)
    if reference.transport == "docker-archive":
        return SavedSource(downloads, lambda: nullcontext(reference.path), reference.tag)
    if reference.transport == "docker-daemon":
        return SavedSource(downloads, partial(daemon_archive, downloads, reference.repository))
    return RegistrySource(downloads, reference.host, reference.repository)


def discover_image(downloads: Downloader, reference: str, base: Path, report: Reporter) -> Sha256:
    """The digest of the linux/amd64 manifest that `reference` stands for now.

    An index is followed to that platform; an image of another platform, or none, raises
    E-OCI-REFERENCE. Raises E-FETCH, E-OFFLINE, E-FETCH-MISMATCH.
    """
    parsed = ImageReference.parse(reference, base)
    source = source_of(downloads, parsed)
    wanted = parsed.wanted
    for _ in range(_MAX_DEPTH):
        data = _manifest(source, parsed, wanted)
        document = _json_object(data, parsed)
        if "manifests" not in document:
            _check_platform(source, document, parsed, report)
            return Sha256(hashlib.sha256(data).hexdigest())
        wanted = str(_amd64(document, parsed))
    raise _unusable(parsed, "its indexes are nested too deeply")


def _manifest(source: ImageSource, reference: ImageReference, wanted: str) -> bytes:
    """The bytes of a manifest, verified where `wanted` is a digest."""
    try:
        data = source.manifest(wanted)
    except TransferError as error:
        raise unreachable(f"the image {reference}", [(_place(reference), error)]) from None
    if wanted.startswith("sha256:"):
        got = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if got != wanted:
            raise ReprobuildError(
                "E-FETCH-MISMATCH",
                f"{reference} gave a manifest {got}, but {wanted} is pinned",
                origin=str(reference),
                expected=wanted,
                got=got,
            )
    return data


def _place(reference: ImageReference) -> Place:
    if reference.transport == "registry":
        return Place(reference.url)
    if reference.transport == "docker-daemon":
        return Place("file:///var/run/docker.sock")
    return Place(reference.path.absolute().as_uri())


def _json_object(data: bytes, reference: ImageReference) -> dict[str, object]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _unusable(reference, "its manifest is no JSON object")
    return document


def _amd64(index: Mapping[str, object], reference: ImageReference) -> Sha256:
    entries = index.get("manifests")
    seen = []
    for entry in entries if isinstance(entries, list) else []:
        platform = entry.get("platform") if isinstance(entry, dict) else None
        if isinstance(platform, dict):
            pair = (platform.get("os"), platform.get("architecture"))
            if pair == ("linux", "amd64") and platform.get("variant") in (None, "", "v1"):
                return _descriptor(entry, reference).sha256
            seen.append(f"{pair[0]}/{pair[1]}"[:40])
    have = ", ".join(sorted(set(seen))) or "none that is named"
    raise _unusable(reference, f"it has no linux/amd64 variant; it has {have}")


def _check_platform(
    source: ImageSource,
    manifest: Mapping[str, object],
    reference: ImageReference,
    report: Reporter,
) -> None:
    config, _ = _parts(manifest, reference)
    wanted = Wanted(f"the configuration of {reference}", config.sha256, config.size)
    with source.blob(wanted, report) as path:
        document = _json_object(path.read_bytes(), reference)
    platform = (document.get("os", "linux"), document.get("architecture", "amd64"))
    if platform != ("linux", "amd64"):
        raise _unusable(reference, f"it is for {platform[0]}/{platform[1]}, not linux/amd64")


def _parts(
    manifest: Mapping[str, object], reference: ImageReference
) -> tuple[Descriptor, list[Descriptor]]:
    layers = manifest.get("layers")
    if "config" not in manifest or not isinstance(layers, list):
        raise _unusable(reference, "its manifest names no config and layers (an old schema?)")
    config = _descriptor(manifest["config"], reference)
    if config.size > 64 * 2**20:
        raise _unusable(reference, f"its configuration has {config.size} bytes")
    return config, [_descriptor(layer, reference) for layer in layers]


def _descriptor(value: object, reference: ImageReference) -> Descriptor:
    if isinstance(value, dict):
        digest, size = value.get("digest"), value.get("size")
        if isinstance(digest, str) and digest.startswith("sha256:") and type(size) is int:
            try:
                if size >= 0:
                    return Descriptor(Sha256.parse(digest), size)
            except ReprobuildError:
                pass
    raise _unusable(reference, "its manifest has a descriptor without a sha256 digest and a size")


def _unusable(reference: ImageReference, why: str) -> ReprobuildError:
    return ReprobuildError("E-OCI-REFERENCE", f"{reference}: {why}", origin=str(reference))


class OciFetcher:
    """Fetches a pinned image into a tree that is an OCI image layout."""

    def __init__(self, downloads: Downloader, content: ContentStore, base: Path) -> None:
        self._downloads = downloads
        self._content = content
        self._base = base

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `ports.Fetcher`. The tree is a function of the manifest's digest alone."""
        if fixed.kind != "oci-image" or fixed.sha256 is None:
            raise ReprobuildError("E-LOCK", f"a {fixed.kind!r} pin where an image's was expected")
        reference = ImageReference.parse(text(origin, "reference"), self._base)
        source = source_of(self._downloads, reference)
        data = _manifest(source, reference, str(fixed.sha256))
        manifest = _json_object(data, reference)
        config, layers = _parts(manifest, reference)

        builder = TreeBuilder()
        for descriptor in dict.fromkeys([config, *layers]):
            wanted = Wanted(f"{reference} blob", descriptor.sha256, descriptor.size)
            if descriptor.sha256 == fixed.sha256:
                raise _unusable(reference, "its manifest names itself")
            with source.blob(wanted, report) as path:
                entry = add_file(self._content, path, descriptor.sha256)
            builder.add(f"blobs/sha256/{descriptor.sha256.hex}".encode(), entry)
        self._add(builder, f"blobs/sha256/{fixed.sha256.hex}", data)
        self._add(builder, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        self._add(builder, "index.json", encode(_index(manifest, fixed.sha256, len(data))))
        digest, nodes = builder.build()
        self._content.add_trees(nodes)
        return digest

    def _add(self, builder: TreeBuilder, path: str, data: bytes) -> None:
        builder.add(path.encode(), self._content.add_blob(io.BytesIO(data), size=len(data)))


def _index(manifest: Mapping[str, object], digest: Sha256, size: int) -> Value:
    kind = manifest.get("mediaType")
    return {
        "manifests": [
            {
                "digest": str(digest),
                "mediaType": kind if isinstance(kind, str) and kind else _MANIFEST,
                "size": size,
            }
        ],
        "schemaVersion": 2,
    }
