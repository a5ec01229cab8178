"""The statement inside an image, with its lists, read out of the layers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from reprobuild.adapters.oci.layout import LayoutFiles, blob_name
from reprobuild.core.image import ImageFacts
from reprobuild.errors import ReprobuildError

FOLDER = "usr/share/reprobuild/"
PLACE = FOLDER + "statement.json"
MAX_STATEMENT = 64 * 2**20
MAX_LISTS = 2**30


@dataclass(frozen=True, slots=True)
class Inside:
    """What an image says of itself: the statement, the lists beside it, and in which layer."""

    statement: Mapping[str, Any]
    layer: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By layer name: core/filelist.py."""
    sources: Mapping[str, bytes] = field(default_factory=dict)
    """By component: core/tracked.py."""


def read_statement(files: LayoutFiles, image: ImageFacts) -> Inside:
    """The statement of the topmost layer that has one; raises E-IMAGE-VERIFY when none has."""
    from reprobuild.adapters.builders.decompress import decompressed
    from reprobuild.adapters.builders.tarread import DAMAGE, entries

    for index, layer in reversed(list(enumerate(image.layers))):
        statement: Mapping[str, Any] | None = None
        lists: dict[str, dict[str, bytes]] = {"files": {}, "sources": {}}
        room = MAX_LISTS
        try:
            with files.open(blob_name(layer.digest)) as source:
                magic = source.read(8)
                source.seek(0)
                for archive, info in entries(decompressed(source, magic)):
                    name = info.name.removeprefix("./")
                    if not name.startswith(FOLDER) or not info.isreg():
                        continue
                    reader = cast("BinaryIO", archive.extractfile(info))
                    folder, _, rest = name.removeprefix(FOLDER).partition("/")
                    if name == PLACE and info.size <= MAX_STATEMENT:
                        statement = _parse(reader.read())
                    elif folder in lists and info.size <= room:
                        room -= info.size
                        lists[folder][rest] = reader.read()
        except DAMAGE as error:
            raise ReprobuildError(
                "E-IMAGE-VERIFY", f"layer {layer.digest} cannot be read: {error}"
            ) from error
        if statement is not None:
            return Inside(statement, index, lists["files"], lists["sources"])
    raise ReprobuildError(
        "E-IMAGE-VERIFY",
        f"no layer of the image holds /{PLACE}",
        hint="only images that reprobuild assembled have a statement inside",
    )


def _parse(data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
        if document["format"] != 0:
            raise ValueError(f"format {document['format']!r}")
        if not isinstance(document["release"], dict):
            raise ValueError("the release is no table")
        for row in document["components"]:
            if not all(isinstance(row[key], str) for key in ("name", "drv", "tree")):
                raise ValueError("a component lacks name, drv or tree")
            if not isinstance(row.setdefault("layers", []), list):
                raise ValueError("a component's layers are no list")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReprobuildError(
            "E-IMAGE-VERIFY", f"the statement inside the image is off: {error}"
        ) from error
    return cast("Mapping[str, Any]", document)
