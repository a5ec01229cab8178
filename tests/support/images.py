"""Small images for tests."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from reprobuild.adapters.builders import builtins
from reprobuild.adapters.oci.storelayout import store_layout
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.image import (
    LAYER_GZIP,
    Layer,
    RunConfig,
    config_document,
    index_document,
    manifest_document,
    sha256_of,
)
from reprobuild.core.tree import File
from reprobuild.ports import ContentStore
from support.archives import tar
from support.trees import Given, make

CREATED = "2026-01-31T00:00:00Z"
REFERENCE = "example/quick:v1"


def layer(
    store: ContentStore,
    files: Mapping[str, Given],
    beneath: Mapping[str, Digest] = MappingProxyType({}),
    **params: Value,
) -> Mapping[str, Digest]:
    """The outputs of a layer step over a tree of the files."""
    inputs = {"tree": make(store, files), **beneath}
    return builtins()["layer"].build(params, inputs, store)


def image(
    store: ContentStore,
    layers: Mapping[str, Mapping[str, Digest]],
    beneath: Mapping[str, Digest] = MappingProxyType({}),
    **params: Value,
) -> Digest:
    """An image of the layers (component name to the outputs of its layer step)."""
    inputs = dict(beneath)
    for index, outputs in enumerate(layers.values()):
        inputs[f"layer-{index}"] = outputs["out"]
        inputs[f"tree-{index}"] = outputs["tree"]
    given: dict[str, Value] = {
        "created": CREATED,
        "reference": REFERENCE,
        "components": list(layers),
        **params,
    }
    return builtins()["image"].build(given, inputs, store)["out"]


def foreign_image(
    store: ContentStore,
    layers: Sequence[Sequence[tuple[tarfile.TarInfo, bytes]]],
    run: RunConfig | None = None,
) -> Digest:
    """A base image as others make it: layers of any tar entries."""
    described: list[tuple[Layer, File]] = []
    for entries in layers:
        plain = tar(entries)
        packed = gzip.compress(plain, mtime=0)
        facts = Layer(sha256_of(plain), sha256_of(packed), len(packed), LAYER_GZIP)
        described.append((facts, store.add_blob(io.BytesIO(packed))))
    config = config_document(
        run or RunConfig(), [d for d, _ in described], created=CREATED, architecture="amd64"
    )
    manifest = manifest_document(config, [d for d, _ in described])
    index = index_document(manifest, reference="base:1", architecture="amd64")
    return store_layout(store, index=index, documents=(manifest, config), layers=tuple(described))


def quick_image(store: ContentStore) -> Digest:
    """The image that golden digests are of."""
    base = layer(
        store,
        {
            "bin": "usr/bin",
            "lib": "usr/lib",
            "usr/bin/tool": (b"#!/bin/sh\necho tool\n", True),
            "usr/lib/libx.so": b"x" * 3_000_000,
            "tmp": None,
            "etc/passwd": b"root:x:0:0::/root:/bin/sh\n",
        },
        name="base",
        owners={"tmp": {"mode": "1777"}},
        mtime=1_700_000_000,
    )
    more = layer(
        store,
        {"lib/python3/dist-packages/demo.py": b"print(1)\n", "opt/demo/" + "ä" * 60: b"long"},
        {"below-0": base["tree"]},
        name="demo",
        mtime=1_700_000_000,
    )
    return image(
        store,
        {"base": base, "demo": more},
        config={
            "entrypoint": ["/usr/bin/tool"],
            "cmd": ["--help"],
            "env": {"PATH": "/usr/bin:/bin", "A": "ä"},
            "labels": {"local-inference.demo.tree": "x", "org.opencontainers.image.title": "q"},
            "workdir": "/opt",
            "user": "0",
        },
        tree_labels={"local-inference.base.digest": "tree-0"},
    )
