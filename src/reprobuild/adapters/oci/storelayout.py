"""Image layouts as trees of the content store."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.image import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    INDEX,
    MANIFEST,
    MEDIA_TYPES,
    OCI_LAYOUT,
    REF_NAME,
    Descriptor,
    ImageFacts,
    Layer,
    facts,
    parse_index,
    parse_json,
    sha256_of,
)
from reprobuild.core.tree import Directory, Entry, File
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentReader, ContentStore

MAX_DOCUMENT = 8 * 2**20
"""Manifests, indices and configs larger than this (in bytes) are refused unread."""


def _entry(content: ContentReader, tree: Digest, *names: str) -> Entry:
    entry: Entry = Directory(tree)
    for name in names:
        found = (
            content.tree(entry.digest).get(name.encode()) if isinstance(entry, Directory) else None
        )
        if found is None:
            raise ReprobuildError("E-IMAGE", f"the layout lacks {'/'.join(names)}")
        entry = found
    return entry


def read_file(content: ContentReader, tree: Digest, *names: str) -> bytes:
    """A small document of a layout; raises E-IMAGE when it is missing or too large."""
    entry = _entry(content, tree, *names)
    if not isinstance(entry, File) or entry.size > MAX_DOCUMENT:
        raise ReprobuildError("E-IMAGE", f"{'/'.join(names)} of the layout is no document")
    with content.open_blob(entry.digest) as source:
        parts = []
        while chunk := source.read(2**16):
            parts.append(chunk)
    return b"".join(parts)


def blob_file(content: ContentReader, tree: Digest, digest: Sha256) -> File:
    """A layout's blob as a store file; raises E-IMAGE when it is not there."""
    entry = _entry(content, tree, "blobs", "sha256", digest.hex)
    if not isinstance(entry, File):
        raise ReprobuildError("E-IMAGE", f"blob {digest} of the layout is no file")
    return entry


def _document(content: ContentReader, tree: Digest, digest: Sha256) -> bytes:
    data = read_file(content, tree, "blobs", "sha256", digest.hex)
    if sha256_of(data) != digest:
        raise ReprobuildError(
            "E-IMAGE", f"blob {digest} of the layout holds {sha256_of(data)}", digest=str(digest)
        )
    return data


@dataclass(frozen=True, slots=True)
class StoredImage:
    """The one image of a layout: what it says, its config and its layers' blobs."""

    facts: ImageFacts
    config: Mapping[str, Value]
    blobs: tuple[tuple[Layer, File], ...]


def _choose(found: list[Descriptor], architecture: str) -> Descriptor:
    fitting = [d for d in found if d.platform in (("linux", architecture), ("", ""))]
    exact = [d for d in fitting if d.platform[0]]
    chosen = exact or fitting
    if len(chosen) != 1:
        raise ReprobuildError(
            "E-IMAGE",
            f"the layout holds {len(chosen)} images for linux/{architecture}; one is needed",
        )
    return chosen[0]


def load_image(content: ContentReader, tree: Digest, architecture: str = "amd64") -> StoredImage:
    """Reads the image for linux/`architecture` out of a layout tree; raises E-IMAGE."""
    parse_json(read_file(content, tree, "oci-layout"), "oci-layout")
    descriptor = _choose(parse_index(read_file(content, tree, "index.json")), architecture)
    reference = descriptor.annotations.get(REF_NAME, "")
    for _ in range(4):
        if descriptor.media_type not in (INDEX, DOCKER_INDEX):
            break
        nested = parse_index(_document(content, tree, descriptor.digest))
        descriptor = _choose(nested, architecture)
    if descriptor.media_type not in (MANIFEST, DOCKER_MANIFEST):
        raise ReprobuildError("E-IMAGE", f"the layout holds a {descriptor.media_type[:80]!r}")
    manifest = _document(content, tree, descriptor.digest)
    config_digest = Descriptor.parse(
        parse_json(manifest, "the manifest").get("config"), "the manifest"
    ).digest
    config = _document(content, tree, config_digest)
    known = facts(reference, descriptor.digest, manifest, config)
    blobs: list[tuple[Layer, File]] = []
    for layer in known.layers:
        media_type = MEDIA_TYPES.get(layer.media_type)
        if media_type is None:
            raise ReprobuildError("E-IMAGE", f"a layer is of type {layer.media_type[:80]!r}")
        file = blob_file(content, tree, layer.digest)
        if file.size != layer.size:
            raise ReprobuildError(
                "E-IMAGE", f"layer {layer.digest} has {file.size} bytes, not {layer.size}"
            )
        same = Layer(layer.diff_id, layer.digest, layer.size, media_type, layer.component)
        blobs.append((same, file))
    return StoredImage(known, parse_json(config, "the config"), tuple(blobs))


def read_image(content: ContentReader, tree: Digest) -> ImageFacts:
    """What the image in a layout tree says about itself; reads three small documents."""
    return load_image(content, tree).facts


def store_layout(
    content: ContentStore,
    *,
    index: bytes,
    documents: tuple[bytes, ...],
    layers: tuple[tuple[Layer, File], ...],
) -> Digest:
    """Stores a layout tree: `documents` (manifest and config) and `layers` become its blobs."""
    builder = TreeBuilder()
    builder.add(b"oci-layout", content.add_blob(io.BytesIO(OCI_LAYOUT)))
    builder.add(b"index.json", content.add_blob(io.BytesIO(index)))
    for data in documents:
        path = f"blobs/sha256/{sha256_of(data).hex}".encode()
        builder.add(path, content.add_blob(io.BytesIO(data)))
    for layer, file in layers:
        path = f"blobs/sha256/{layer.digest.hex}".encode()
        builder.add(path, File(file.digest, file.size))
    digest, nodes = builder.build()
    content.add_trees(nodes)
    return digest
