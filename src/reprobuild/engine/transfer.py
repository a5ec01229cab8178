"""export: which objects a bundle holds, in which order, and what it says of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

from reprobuild.core.bundle import format as layout
from reprobuild.core.bundle.closure import Closure
from reprobuild.core.bundle.format import Entry
from reprobuild.core.bundle.manifest import (
    RUNTIME,
    SOURCES,
    Expected,
    Manifest,
    Requires,
    Wanted,
)
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph, documents
from reprobuild.core.kinds.context import Located
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, File
from reprobuild.engine.transferport import TransferStore
from reprobuild.errors import ReprobuildError

AT_ONCE = 2**20
"""Bytes of a blob that is read whole rather than as a stream."""


@dataclass(slots=True)
class Walk:
    """Everything below some trees: nodes children first, blobs in the order of the walk."""

    content: TransferStore
    skip_trees: set[bytes] = field(default_factory=set)
    skip_blobs: set[bytes] = field(default_factory=set)
    trees: dict[Digest, int] = field(default_factory=dict)
    blobs: dict[Digest, tuple[bytes, int]] = field(default_factory=dict)

    def add(self, tree: Digest) -> None:
        """Walks `tree`; what was walked before is passed over."""
        stack: list[tuple[Digest, int]] = [(tree, -1)]
        while stack:
            digest, size = stack.pop()
            if size >= 0:
                self.trees[digest] = size
                continue
            if digest in self.trees or digest.raw in self.skip_trees:
                continue
            node = self.content.tree(digest)
            stack.append((digest, len(node.encode())))
            below = []
            for _, entry in node:
                if isinstance(entry, Directory):
                    below.append((entry.digest, -1))
                elif isinstance(entry, File) and entry.digest.raw not in self.skip_blobs:
                    kind = layout.EXECUTABLE if entry.executable else layout.BLOB
                    self.blobs.setdefault(entry.digest, (kind, entry.size))
            stack += reversed(below)

    def entries(self) -> list[Entry]:
        """Blobs, then trees."""
        blobs = [Entry(kind, digest, size) for digest, (kind, size) in self.blobs.items()]
        return blobs + [Entry(layout.TREE, digest, size) for digest, size in self.trees.items()]


@dataclass(frozen=True, slots=True)
class Shipment:
    """What a bundle will hold: manifest (without its outer parts' digests), objects in order."""

    manifest: Manifest
    entries: tuple[Entry, ...]
    full_objects: int
    full_size: int
    """Objects and bytes that a bundle without a base would hold."""

    open: Callable[[Entry], BinaryIO]

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Held:
    """What the other side has, as far as this store knows what its closures mean."""

    trees: frozenset[Digest] = frozenset()
    drvs: frozenset[str] = frozenset()
    requires: Requires = field(default_factory=Requires)


@dataclass(slots=True)
class Exporter:
    """Plans a bundle over one store."""

    store: TransferStore

    def plan(
        self,
        graph: Graph,
        targets: Mapping[str, Located],
        *,
        sources: bool,
        project: Digest | None,
        git: Mapping[str, Digest],
        held: Held | None = None,
    ) -> Shipment:
        """The shipment for some installables.

        Raises E-NOT-REALIZED naming the recipe whose content is not here.
        """
        held = held or Held()
        outputs, records = self._targets(graph, targets)
        closure = graph.closure(place.drv for place in targets.values())
        trees = [wanted.tree for wanted in outputs.values()]
        expected: dict[Digest, Expected] = {}
        if sources:
            for drv in sorted(closure):
                record = self._source(graph, drv, trees)
                if record is not None:
                    records[drv] = record
                known = self.store.realized(drv)
                if known is not None and drv not in records:
                    expected[drv] = Expected(graph.nodes[drv].name, dict(known.outputs))
        for drv, record in records.items():
            expected[drv] = Expected(graph.nodes[drv].name, dict(record.outputs))
        trees += [tree for record in records.values() for tree in record.outputs.values()]
        trees += [*git.values(), *([project] if project is not None else [])]
        keep = Closure.of(
            (t.hex for t in trees), (d.hex for d in closure), map(reference, records.values())
        )
        manifest = Manifest(
            kind=SOURCES if sources else RUNTIME,
            keep=keep,
            outputs=outputs,
            project=project,
            chosen={drv: reference(record) for drv, record in records.items()},
            expected=expected,
            git=git,
        )
        return self.ship(manifest, documents(graph, closure), records.values(), held)

    def share_needed(self, shipment: Shipment) -> dict[str, Value]:
        """What of a shipment with sources a rebuild reads, and what it makes anew, for a proof.

        `needed` and `not_needed` each have `objects` and `bytes`; the former the names of fetched
        `sources`, the latter the `outputs` whose trees and records are there for comparison.
        """
        manifest = shipment.manifest
        results = {wanted.tree.hex for wanted in manifest.outputs.values()}
        walk = Walk(self.store)
        for tree in manifest.keep.trees:
            if tree not in results:
                walk.add(Digest(tree))
        read = {(e.kind, e.digest) for e in walk.entries()}
        made = {wanted.drv for wanted in manifest.outputs.values()}
        needed = [
            e
            for e in shipment.entries
            if e.kind == layout.DRV or (e.kind != layout.RECORD and (e.kind, e.digest) in read)
        ]
        rest = len(shipment.entries) - len(needed)
        size = sum(e.size for e in needed)
        sources = sorted({manifest.expected[d].name for d in manifest.chosen if d not in made})
        return {
            "needed": {"bytes": size, "objects": len(needed), "sources": [*sources]},
            "not_needed": {
                "bytes": shipment.size - size,
                "objects": rest,
                "outputs": [*sorted(manifest.outputs)],
            },
        }

    def _targets(
        self, graph: Graph, targets: Mapping[str, Located]
    ) -> tuple[dict[str, Wanted], dict[Digest, Record]]:
        outputs: dict[str, Wanted] = {}
        records: dict[Digest, Record] = {}
        for name, place in sorted(targets.items()):
            record = self.store.realized(place.drv)
            if record is None or not self._here(record):
                raise ReprobuildError(
                    "E-NOT-REALIZED",
                    f"{name} has not been made here as the flake says it now",
                    drv=str(place.drv),
                    hint=f"run `reprobuild realize {name}` first",
                )
            records[place.drv] = record
            tree = record.outputs[place.output]
            outputs[name] = Wanted(place.drv, reference(record), tree, place.output)
        return outputs, records

    def _here(self, record: Record) -> bool:
        return all(self.store.contains(tree) for tree in record.outputs.values())

    def _source(self, graph: Graph, drv: Digest, trees: list[Digest]) -> Record | None:
        """The record of a fetched input that goes along; sources out of git are integrated anew."""
        fixed = graph.nodes[drv].fixed
        if fixed is None or fixed.kind == "git-tree":
            return None
        record = self.store.realized(drv)
        if record is not None and self._here(record):
            return record
        if fixed.tree is not None and self.store.contains(fixed.tree):
            trees.append(fixed.tree)
            return None
        raise ReprobuildError(
            "E-NOT-REALIZED",
            f"the source {graph.nodes[drv].name} is not in the store",
            drv=str(drv),
            hint="run `reprobuild export --sources` without --offline, so that it can be fetched",
        )

    def ship(
        self,
        manifest: Manifest,
        drvs: Mapping[Digest, bytes],
        records: Iterable[Record],
        held: Held,
    ) -> Shipment:
        """The objects of a manifest's `keep`, in order, less what is held."""
        texts: dict[tuple[bytes, Digest], bytes] = {}
        for drv in sorted(drvs):
            texts[layout.DRV, drv] = drvs[drv]
        for record in sorted(records, key=reference):
            texts[layout.RECORD, record.digest] = record.encode()
        full = Walk(self.store)
        walk = self._without(held) if held.trees else full
        for tree in manifest.keep.trees:
            full.add(Digest(tree))
            if walk is not full:
                walk.add(Digest(tree))
        documents_ = [
            Entry(kind, digest, len(data))
            for (kind, digest), data in texts.items()
            if kind != layout.DRV or digest.hex not in held.drvs
        ]
        entries = (*walk.entries(), *documents_)
        everything = [*full.entries(), *(Entry(k, d, len(v)) for (k, d), v in texts.items())]
        used = len(entries) < len(everything)
        return Shipment(
            replace(manifest, requires=held.requires if used else Requires()),
            entries,
            len(everything),
            sum(e.size for e in everything),
            lambda entry: self._open(entry, texts),
        )

    def _without(self, held: Held) -> Walk:
        known = Walk(self.store)
        for tree in sorted(held.trees):
            known.add(tree)
        return Walk(self.store, {t.raw for t in known.trees}, {b.raw for b in known.blobs})

    def _open(self, entry: Entry, texts: Mapping[tuple[bytes, Digest], bytes]) -> BinaryIO:
        if entry.kind in (layout.BLOB, layout.EXECUTABLE):
            if entry.size > AT_ONCE:
                return self.store.open_blob(entry.digest)
            file = File(entry.digest, entry.size, entry.kind == layout.EXECUTABLE)
            return cast(BinaryIO, io.BytesIO(self.store.read_blob(file)))
        if entry.kind == layout.TREE:
            return cast(BinaryIO, io.BytesIO(self.store.tree(entry.digest).encode()))
        return cast(BinaryIO, io.BytesIO(texts[entry.kind, entry.digest]))


def reference(record: Record) -> str:
    """`action/record`, as roots name records."""
    return f"{record.action.hex}/{record.digest.hex}"
