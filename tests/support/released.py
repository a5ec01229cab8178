"""A whole image with its statement, as an evaluated release has it, without a flake."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from reprobuild.adapters.builders import builtins
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.kinds.labels import labels_of
from reprobuild.data import contract_program, verify_program
from reprobuild.ports import ContentStore
from support.images import image, layer
from support.trees import Given, make

DRV = "blake3:" + "d" * 64
PREFIX = "org.example"

SOURCE: dict[str, Given] = {
    "pyproject.toml": b"[project]\n",
    "demo/__init__.py": b"VERSION = 1\n",
    "demo/engine.py": b"def run() -> None: ...\n",
    "demo/tests/test_engine.py": b"import demo\n",
}
INSTALLED: dict[str, Given] = {
    "usr/lib/python3/dist-packages/demo/__init__.py": b"VERSION = 1\n",
    "usr/lib/python3/dist-packages/demo/engine.py": b"def run() -> None: ...\n",
    "usr/lib/python3/dist-packages/demo/_version.py": b"made by the build\n",
    "usr/lib/python3/dist-packages/demo-1.0.dist-info/METADATA": (
        b"Metadata-Version: 2.4\nName: demo\nVersion: 1.0\nLicense-Expression: Apache-2.0\n\n"
    ),
    "opt/demo/run": (b"#!/bin/sh\n", True),
    "opt/demo/link": "run",
}


def git_tree(files: Mapping[str, Given]) -> str:
    """The git tree of files, computed apart from the product (one SHA-1 for each object)."""

    def oid(kind: bytes, body: bytes) -> bytes:
        return hashlib.sha1(kind + b" %d\0" % len(body) + body, usedforsecurity=False).digest()

    def directory(prefix: str) -> bytes:
        rows = {}
        for name in {
            p.removeprefix(prefix).partition("/")[0] for p in files if p.startswith(prefix)
        }:
            given = files.get(prefix + name)
            if given is None:
                rows[name + "/"] = b"40000 " + name.encode() + b"\0" + directory(f"{prefix}{name}/")
            else:
                assert isinstance(given, bytes)
                rows[name] = b"100644 " + name.encode() + b"\0" + oid(b"blob", given)
        return oid(b"tree", b"".join(rows[key] for key in sorted(rows)))

    return directory("").hex()


def row(**more: Any) -> dict[str, Any]:
    """A component's row before anything is built."""
    return {
        "archs": [],
        "cuda": [],
        "drv": DRV,
        "licence": "",
        "modified": {},
        "name": "demo",
        "paths": ["opt/demo/run"],
        "python": [],
        "source": {
            "base": "b" * 40,
            "heads": [
                {"disposition": "merged", "head": "a" * 40, "number": 7, "title": "engine: run"}
            ],
            "integration_tree": git_tree(SOURCE),
            "patch_digest": "blake3:" + "1" * 64,
            "patch_sha256": "2" * 64,
            "ref": "refs/heads/main",
            "repository": "https://example.org/demo.git",
            "strategy": "merge",
        },
        "version": "1.0",
        **more,
    }


def document(*rows: Mapping[str, Any], **release: Any) -> dict[str, Any]:
    """A statement before anything is built."""
    return {
        "components": [dict(r) for r in rows],
        "format": 0,
        "release": {
            "cache_fingerprint": "",
            "codename": "demo",
            "date": "2026-01-31",
            "dirty": [],
            "isolation": "full",
            "label_prefix": PREFIX,
            "labels": {},
            "model_revision": None,
            "output": "demo",
            "reference": "example/demo:v1",
            "revision": "r1",
            "runtime": {},
            "title": "Demo",
            **release,
        },
    }


def released(
    store: ContentStore,
    *,
    installed: Mapping[str, Given] = INSTALLED,
    source: Mapping[str, Given] = SOURCE,
    made: Mapping[str, Given] | None = None,
    stated: dict[str, Any] | None = None,
    labels: Mapping[str, str | None] | None = None,
    pins: tuple[Mapping[str, str], ...] = (),
    change: Any = None,
    base: Digest | None = None,
    **params: Any,
) -> Digest:
    """The layout of an image of one component, `demo`.

    `made` is what the build is said to have made (default: all that is installed); `stated` the
    statement before the build; `labels` overrides single labels (None: left out); `change` may
    turn the outputs of demo's layer into others after the statement was made.
    """
    stated = stated if stated is not None else document(row())
    beneath = {"base-0": base} if base is not None else {}
    own = layer(store, dict(installed), beneath, name="demo", **params)
    inputs: dict[str, Digest] = {
        "tree-demo": make(store, dict(installed)),
        "layer-demo": own["out"],
        "placed-demo": own["tree"],
        "origin-demo-0": make(store, dict(made if made is not None else installed)),
        "source-demo": make(store, dict(source)),
        **beneath,
    }
    origins: list[Value] = [
        {"drv": DRV, "kind": "derivation", "links": [], "name": "demo.build", "texts": [],
         "pins": [dict(pin) for pin in pins]}
    ]  # fmt: skip
    inside = builtins()["statement"].build(
        {
            "document": stated,
            "origins": {"demo": origins},
            "program": contract_program(),
            "verifier": verify_program(),
        },
        inputs,
        store,
    )["out"]
    sealed = builtins()["layer"].build({"name": "statement"}, {"tree": inside, **beneath}, store)
    given = {**labels_of(stated), **(labels or {})}
    tree_labels = {f"{PREFIX}.demo.tree": "whole-0"}
    for key in [k for k, v in given.items() if v is None]:
        tree_labels.pop(key, None)
    return image(
        store,
        {"demo": change(own) if change is not None else own, "statement": sealed},
        {**beneath, "whole-0": inputs["tree-demo"]},
        config={"labels": {k: v for k, v in given.items() if v is not None}},
        tree_labels=tree_labels,
        reference="example/demo:v1",
    )
