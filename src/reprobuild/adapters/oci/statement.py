"""The statement inside an image, held against the image around it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from reprobuild.adapters.oci.layout import LayoutFiles, blob_name
from reprobuild.core.image import ImageFacts
from reprobuild.errors import ReprobuildError

PLACE = "usr/share/reprobuild/statement.json"
MAX_STATEMENT = 64 * 2**20


def read_statement(files: LayoutFiles, image: ImageFacts) -> Mapping[str, Any]:
    """The statement of the topmost layer that has one; raises E-IMAGE-VERIFY when none has."""
    from reprobuild.adapters.builders.decompress import decompressed
    from reprobuild.adapters.builders.tarread import DAMAGE, entries

    for layer in reversed(image.layers):
        try:
            with files.open(blob_name(layer.digest)) as source:
                magic = source.read(8)
                source.seek(0)
                for archive, info in entries(decompressed(source, magic)):
                    if info.name.removeprefix("./") == PLACE and info.isreg():
                        reader = archive.extractfile(info)
                        if reader is not None and info.size <= MAX_STATEMENT:
                            return _parse(reader.read())
        except DAMAGE as error:
            raise ReprobuildError(
                "E-IMAGE-VERIFY", f"layer {layer.digest} cannot be read: {error}"
            ) from error
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
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReprobuildError(
            "E-IMAGE-VERIFY", f"the statement inside the image is off: {error}"
        ) from error
    return cast("Mapping[str, Any]", document)


def check_statement(statement: Mapping[str, Any], image: ImageFacts) -> int:
    """How many components the statement names, when labels and layers say the same.

    For each there must be a layer of that name and labels `….NAME.drv`, `….NAME.tree` and, with a
    source, `….NAME.commit` and `….NAME.integration.tree`. Raises E-IMAGE-VERIFY, naming all that
    does not hold.
    """
    problems: list[str] = []
    rows: Sequence[Mapping[str, Any]] = statement["components"]
    layers = [layer.component for layer in image.layers]
    for row in rows:
        name = row["name"]
        if name not in layers:
            problems.append(f"there is no layer of the component {name}")
        source = row.get("source")
        source = source if isinstance(source, dict) else {}
        for key, stated in (
            ("drv", row["drv"]),
            ("tree", row["tree"]),
            ("commit", source.get("base")),
            ("integration.tree", source.get("integration_tree")),
        ):
            if stated is not None:
                problems += _label(image.labels, f".{name}.{key}", str(stated))
    reference = statement["release"].get("reference")
    version = image.labels.get("org.opencontainers.image.version")
    if reference and version and str(reference).rpartition(":")[2] != version:
        problems.append(f"the statement is of {reference}, the labels of version {version}")
    if problems:
        raise ReprobuildError(
            "E-IMAGE-VERIFY",
            f"the image and the statement inside disagree: {problems[0]}",
            problems=problems[:50],
        )
    return len(rows)


def _label(labels: Mapping[str, str], suffix: str, stated: str) -> list[str]:
    found = {key: value for key, value in labels.items() if key.endswith(suffix)}
    if not found:
        return [f"there is no label …{suffix}"]
    return [
        f"the label {key} is {value}, the statement says {stated}"
        for key, value in found.items()
        if value != stated
    ]
