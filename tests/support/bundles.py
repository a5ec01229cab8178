"""A small release in a store, without any builder, and bundles of it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from reprobuild.adapters.bundle.head import make_boot, make_head
from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.bundle.writer import Plan, Written, compressor, write_bundle
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle.format import Entry
from reprobuild.core.bundle.signing import BUNDLE, sign
from reprobuild.core.derivation import Derivation, FixedOutput, Input
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph, documents
from reprobuild.core.kinds.context import Located
from reprobuild.core.record import Record
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.engine.transfer import Exporter, Held, Shipment
from reprobuild.engine.transfer_import import Imported, Importer

Content = Mapping[str, bytes]


class TestSigner:
    """An ed25519 key made from a seed."""

    __test__ = False

    def __init__(self, seed: int = 1) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.key = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


class TestTrust:
    """Believes the keys that it is given."""

    __test__ = False

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    def verify(self, key: bytes, message: bytes, signature: bytes) -> bool:
        if key not in self._keys:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        except Exception:  # noqa: BLE001 - cryptography's own, whatever it is called
            return False
        return True


def add_tree(store: LocalStore, content: Content) -> Digest:
    """Stores files by path; a path that ends in `*` is executable."""
    builder = TreeBuilder()
    for path, data in content.items():
        executable = path.endswith("*")
        entry = store.add_blob(io.BytesIO(data), executable=executable)
        builder.add(path.removesuffix("*").encode(), entry)
    digest, nodes = builder.build()
    store.add_trees(nodes)
    return digest


SOURCE: Content = {
    "src/main.c": b"int main(void) { return 0; }\n" * 40,
    "src/deep/er/x.h": b"#pragma once\n",
    "run*": b"#!/bin/sh\necho run\n",
    "empty": b"",
}
RESULT: Content = {"bin/program*": b"\x7fELF" + bytes(range(256)) * 50, "share/doc": b"text\n"}


@dataclass
class Release:
    """A realized output named `demo` in `store`, over a local directory and a file."""

    store: LocalStore
    graph: Graph
    target: Located
    project: Digest
    trees: list[Digest]

    def plan(self, *, sources: bool = True, held: Held | None = None) -> Shipment:
        """What export would take."""
        return Exporter(self.store).plan(
            self.graph,
            {"demo": self.target},
            sources=sources,
            project=self.project,
            git={},
            held=held,
        )

    def export(self, path: Path, *, signer: TestSigner | None = None, **options: Any) -> Written:
        """Writes a bundle."""
        return write(path, self.plan(**options), signer=signer)


def make_release(
    path: Path, *, source: Content = SOURCE, result: Content = RESULT, order: int = 1
) -> Release:
    """The release, with content added in one order or the other."""
    store = LocalStore.open(path, create=True)
    made = {}
    wheel = {"thing-1.whl": b"PK not really a wheel" * 100}
    project = {"flake-like.toml": b"format = 0\n", "derivations/a.toml": b'version = "1"\n'}
    for name, content in list(
        {"source": source, "wheel": wheel, "result": result, "project": project}.items()
    )[::order]:
        made[name] = add_tree(store, content)
    graph = Graph()
    first = Derivation("inputs.source", "fetch", fixed=FixedOutput("tree", tree=made["source"]))
    sha256 = Sha256(hashlib.sha256(wheel["thing-1.whl"]).hexdigest())
    second = Derivation(
        "inputs.thing:0", "fetch", fixed=FixedOutput("file", filename="thing-1.whl", sha256=sha256)
    )
    drvs = [graph.add(first), graph.add(second)]
    middle = Derivation("a.step", "builtin:fake", (Input("a", drvs[0]),))
    drvs.append(graph.add(middle))
    last = Derivation("a.result", "builtin:fake", (Input("m", drvs[2]), Input("w", drvs[1])))
    drvs.append(graph.add(last))
    inner = add_tree(store, {"middle": b"half way\n"})
    store.barrier()
    store.add_derivations(documents(graph, drvs))
    trees = [made["source"], made["wheel"], inner, made["result"]]
    names = [graph.nodes[d].name for d in drvs]
    for number, (drv, tree, name) in enumerate(zip(drvs, trees, names, strict=True)):
        action = Digest.of(b"action" + bytes([number]) + tree.raw)
        record = Record(action, drv, {"out": tree}, name=name, duration_ms=number)
        store.add_record(record)
        store.choose(drv, record)
    store.set_root(
        "project",
        b'{"keep":{"drvs":[],"records":[],"trees":["%s"]}}' % made["project"].hex.encode(),
    )
    return Release(store, graph, Located(drvs[-1]), made["project"], trees)


def write(
    path: Path,
    shipment: Shipment,
    *,
    entries: Iterable[Entry] | None = None,
    open_: Callable[[Entry], BinaryIO] | None = None,
    signer: TestSigner | None = None,
    manifest: Callable[[dict[str, Value]], None] = lambda document: None,
) -> Written:
    """Writes a shipment, or a forged one: other entries, another manifest, other content."""
    head, boot = make_head(b""), make_boot(b"")
    document = replace(
        shipment.manifest,
        compressor=compressor(),
        head=Digest.of(head).hex,
        boot=Digest.of(boot).hex,
    ).document()
    manifest(document)
    chosen = tuple(shipment.entries if entries is None else entries)
    plan = Plan(document, chosen, open_ or shipment.open, head, boot)
    return write_bundle(path, plan, lambda digest: sign(signer, BUNDLE, digest))


def bring(path: Path, store: LocalStore, *, trusted: bool = True) -> Imported:
    """Imports a bundle."""
    with BundleReader(path) as bundle:
        bundle.check_head()
        with store.lease():
            return Importer(store).run(bundle, trusted=trusted)


def forged(entry: Entry, data: bytes, shipment: Shipment) -> Callable[[Entry], BinaryIO]:
    """`open` that gives `data` for one entry."""
    return lambda e: cast(BinaryIO, io.BytesIO(data)) if e == entry else shipment.open(e)
