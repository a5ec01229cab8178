"""image: layers and a config as an OCI image layout.

Inputs: `base-0`… image layouts whose layers come first, as they are; `layer-0`, `tree-0`,
`layer-1`, `tree-1`… layers (the output `out` of layer steps) and what is in them: the components'
trees, or, as `placed-0`, `placed-1`…, the output `tree` of layer steps that have something
beneath; `whole-0`, `whole-1`… trees of components whatever layers they are in, for labels.
Parameters: `config` ({env,
entrypoint, cmd, workdir, user, labels, ports, volumes, stop_signal}), `created` (RFC 3339),
`architecture`, `reference` (repository:tag), `components` (a name for each layer), `replace`
(patterns of paths that a later layer may replace), `tree_labels` ({label: input}: labels that are
the tree digest of an input, known only now).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from reprobuild.adapters.builders.assembly import Assembly
from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.builders.params import Params, numbered
from reprobuild.adapters.oci.storelayout import load_image, read_file, store_layout
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value, decode
from reprobuild.core.image import (
    Layer,
    RunConfig,
    config_document,
    index_document,
    manifest_document,
)
from reprobuild.core.tree import Directory, File
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

KEYS = ("config", "created", "architecture", "reference", "components", "replace", "tree_labels")
CONFIG_KEYS = (
    "env",
    "entrypoint",
    "cmd",
    "workdir",
    "user",
    "labels",
    "ports",
    "volumes",
    "stop_signal",
)
MAX_LAYERS = 127
"""What overlay mounts of current daemons take."""

_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")
_REFERENCE = re.compile(
    r"(?:(?:localhost|[a-zA-Z0-9-]*[.:][a-zA-Z0-9.:-]*)/)?"
    r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z"
)


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-IMAGE, E-IMAGE-OVERLAP (naming both layers)."""
    read = Params("image", params, KEYS)
    created = read.text("created")
    if not _CREATED.match(created):
        raise ReprobuildError("E-PARAMS", f"`created` is not like 2026-01-31T00:00:00Z: {created}")
    reference = read.text("reference", "")
    if reference and not _REFERENCE.match(reference):
        raise ReprobuildError("E-PARAMS", f"`reference` is no repository:tag: {reference[:200]!r}")
    architecture = read.text("architecture", "amd64")
    components = read.texts("components")
    bases, layers, trees = (numbered(inputs, kind) for kind in ("base", "layer", "tree"))
    placed = numbered(inputs, "placed")
    if len(layers) != len(components) or len(set(components)) != len(components):
        raise ReprobuildError(
            "E-PARAMS", f"image has {len(layers)} layers and {len(components)} distinct names"
        )
    if [n.split("-")[1] for n in trees] != [n.split("-")[1] for n in layers]:
        raise ReprobuildError("E-PARAMS", "image needs a `tree-N` for each `layer-N`")
    known = len(bases) + len(layers) + len(trees) + len(placed)
    if len(inputs) != known + len(numbered(inputs, "whole")):
        raise ReprobuildError(
            "E-PARAMS", "image takes `base-N`, `layer-N`, `tree-N`, `placed-N` and `whole-N`"
        )
    patterns = read.texts("replace")
    replace = Selection.of(patterns, []) if patterns else None
    lying = [
        (name, inputs.get(tree.replace("tree-", "placed-"), inputs[tree]))
        for name, tree in zip(components, trees, strict=True)
    ]
    check_overlap(content, lying, replace)

    blobs: list[tuple[Layer, File]] = []
    base_config: Mapping[str, Value] = {}
    for name in bases:
        base = load_image(content, inputs[name], architecture)
        base_config = base.config
        blobs += [
            (Layer(layer.diff_id, layer.digest, layer.size, layer.media_type), file)
            for layer, file in base.blobs
        ]
    blobs += [
        _layer(content, inputs[n], component)
        for n, component in zip(layers, components, strict=True)
    ]
    if len(blobs) > MAX_LAYERS:
        raise ReprobuildError("E-PARAMS", f"{len(blobs)} layers are more than {MAX_LAYERS}")
    described = [layer for layer, _ in blobs]
    config = config_document(
        _run_config(read, inputs),
        described,
        created=created,
        architecture=architecture,
        base=base_config if len(bases) == 1 else {"config": base_config.get("config")},
    )
    manifest = manifest_document(config, described)
    index = index_document(manifest, reference=reference, architecture=architecture)
    return {
        "out": store_layout(content, index=index, documents=(manifest, config), layers=tuple(blobs))
    }


def _run_config(read: Params, inputs: Mapping[str, Digest]) -> RunConfig:
    said = Params("image.config", read.values.get("config"), CONFIG_KEYS)
    env = said.table("env")
    for name in env:
        if not name or "=" in name or "\0" in name + env[name]:
            raise ReprobuildError("E-PARAMS", f"{name!r} is no name for an environment variable")
    labels = said.table("labels")
    for label, name in read.table("tree_labels").items():
        if name not in inputs or label in labels:
            raise ReprobuildError("E-PARAMS", f"the label {label} wants the tree of {name!r}")
        labels[label] = str(inputs[name])
    return RunConfig(
        env=dict(sorted(env.items())),
        entrypoint=said.texts("entrypoint") if said.has("entrypoint") else None,
        cmd=said.texts("cmd") if said.has("cmd") else None,
        workdir=said.text("workdir", ""),
        user=said.text("user", ""),
        labels=labels,
        ports=said.texts("ports"),
        volumes=said.texts("volumes"),
        stop_signal=said.text("stop_signal", ""),
    )


def _layer(content: ContentStore, tree: Digest, component: str) -> tuple[Layer, File]:
    document = decode(read_file(content, tree, "layer.json"))
    fields = cast("Mapping[str, Value]", document)
    node = content.tree(tree)
    names = (b"layer.tar.gz", b"layer.tar.zst", b"layer.tar")
    blob = next((found for name in names if (found := node.get(name)) is not None), None)
    try:
        layer = Layer(
            Sha256.parse(cast(str, fields["diff_id"])),
            Sha256.parse(cast(str, fields["digest"])),
            cast(int, fields["size"]),
            cast(str, fields["media_type"]),
            component,
        )
    except (KeyError, TypeError) as error:
        raise ReprobuildError("E-IMAGE", f"layer.json of {component} lacks {error}") from error
    if not isinstance(blob, File) or blob.size != layer.size:
        raise ReprobuildError("E-IMAGE", f"the layer of {component} is not what it says")
    return layer, blob


def check_overlap(
    content: ContentStore, trees: list[tuple[str, Digest]], replace: Selection | None
) -> None:
    """Raises E-IMAGE-OVERLAP when two trees differ in what stands at one path."""
    merged = Assembly(content)
    try:
        for component, tree in trees:
            merged.put(b"", Directory(tree), component, replace=replace or False)
    except ReprobuildError as error:
        if error.code != "E-TREE-CONFLICT":
            raise
        facts = error.facts
        raise ReprobuildError(
            "E-IMAGE-OVERLAP",
            f"in the image, /{error.message}",
            hint=None,
            path=facts.get("path"),
            first=facts.get("first"),
            second=facts.get("second"),
        ) from error
