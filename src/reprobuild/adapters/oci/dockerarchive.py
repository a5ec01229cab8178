"""Archives as `docker save` writes them (`manifest.json`): config and layers, no OCI manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import BinaryIO

from reprobuild.adapters.oci.layout import MAX_DOCUMENT, LayoutFiles, blob_name
from reprobuild.core.digest import Sha256
from reprobuild.core.image import LAYER, ImageFacts, Layer, parse_json, sha256_of, texts
from reprobuild.errors import ReprobuildError

MANIFEST = "manifest.json"


class SavedFiles:
    """The files of an archive, its layers by the names that a layout would give their contents."""

    def __init__(self, inner: LayoutFiles, layers: Mapping[str, str]) -> None:
        self._inner = inner
        self._layers = layers

    def open(self, name: str) -> BinaryIO:
        """See `LayoutFiles`."""
        return self._inner.open(self._layers.get(name, name))

    def size(self, name: str) -> int:
        """See `LayoutFiles`."""
        return self._inner.size(self._layers.get(name, name))


def is_saved(files: LayoutFiles) -> bool:
    """Whether it is an archive of `docker save`, whatever else it is."""
    try:
        files.size(MANIFEST)
    except ReprobuildError:
        return False
    return True


def read_saved(files: LayoutFiles, reference: str = "") -> tuple[SavedFiles, ImageFacts]:
    """The one image of such an archive (the one tagged `reference`, where there are several).

    Layers are named by their diffIDs, as a daemon knows them. Raises E-IMAGE.
    """
    try:
        entries = json.loads(_small(files, MANIFEST))
        fitting = [e for e in entries if reference in (e.get("RepoTags") or ())] or entries
        if len(fitting) != 1:
            raise ReprobuildError("E-IMAGE", f"the archive holds {len(fitting)} images, not one")
        config_name, layers = str(fitting[0]["Config"]), [str(n) for n in fitting[0]["Layers"]]
        tags = [str(tag) for tag in fitting[0].get("RepoTags") or ()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReprobuildError("E-IMAGE", f"{MANIFEST} of the archive is off: {error}") from error
    config = _small(files, config_name)
    document = parse_json(config, "the config")
    rootfs = document.get("rootfs")
    ids = rootfs.get("diff_ids") if isinstance(rootfs, Mapping) else None
    if not isinstance(ids, list) or len(ids) != len(layers):
        raise ReprobuildError("E-IMAGE", "config and archive disagree on the number of layers")
    run = document.get("config")
    found = [Sha256.parse(str(diff_id)) for diff_id in ids]
    facts = ImageFacts(
        reference or (tags[0] if tags else ""),
        sha256_of(config),
        sha256_of(config),
        tuple(
            Layer(diff_id, diff_id, files.size(name), LAYER)
            for diff_id, name in zip(found, layers, strict=True)
        ),
        texts(run.get("Labels")) if isinstance(run, Mapping) else {},
        str(document.get("architecture", "")),
        manifest_known=False,
    )
    names = {blob_name(d): name for d, name in zip(found, layers, strict=True)}
    return SavedFiles(files, names), facts


def _small(files: LayoutFiles, name: str) -> bytes:
    if files.size(name) > MAX_DOCUMENT:
        raise ReprobuildError("E-IMAGE", f"{name} of the archive is too large for a document")
    with files.open(name) as source:
        return source.read(MAX_DOCUMENT)
