"""Binary caches: taking results that somebody trusted has made, and giving some away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from reprobuild.core.bundle.cacheentry import CacheEntry
from reprobuild.core.bundle.closure import Closure
from reprobuild.core.bundle.manifest import RUNTIME, Manifest
from reprobuild.core.bundle.signing import Trust
from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph, documents
from reprobuild.core.record import Record
from reprobuild.engine.plan import is_made, usable
from reprobuild.engine.transfer import Exporter, Held, Shipment
from reprobuild.engine.transfer_import import Importer
from reprobuild.engine.transferport import OpenBundle, TransferStore
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter


class Substituter(Protocol):
    """A place with cache entries and bundles. Nothing that it says is believed unverified."""

    @property
    def name(self) -> str:
        """For people; holds no credentials."""
        ...

    def entry(self, drv: Digest) -> CacheEntry | None:
        """Its word on a recipe, None where it has none; raises E-FETCH, E-BUNDLE, E-OFFLINE."""
        ...

    def bundle(self, entry: CacheEntry) -> AbstractContextManager[OpenBundle]:
        """The bundle of an entry, its SHA-256 checked; raises E-FETCH…, E-BUNDLE."""
        ...


@dataclass(slots=True)
class Substitution:
    """Asks several caches in order, for one store. A cache that fails is not asked again."""

    store: TransferStore
    caches: Sequence[Substituter]
    trust: Trust
    reporter: Reporter
    taken: dict[Digest, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _broken: set[str] = field(default_factory=set)

    def prefetch(
        self, graph: Graph, targets: Iterable[Digest], wish: Isolation, *, deep: bool = True
    ) -> None:
        """From the targets down: what is not on record is asked for; below what was got, nothing
        is. What nobody has is left to be built; not `deep`, the targets alone are asked for."""
        stack, seen = list(targets) if self.caches else [], set[Digest]()
        while stack:
            drv = stack.pop()
            if drv in seen:
                continue
            seen.add(drv)
            node = graph.nodes[drv]
            record = self.store.realized(drv)
            if record is not None and usable(self.store, record, wish):
                continue
            if is_made(node) and self._take(graph, drv, wish):
                continue
            if deep:
                stack.extend(entry.drv for entry in node.inputs)

    def document(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "from": dict(Counter(self.taken.values())),
            "notes": list(self.notes),
            "taken": len(self.taken),
        }

    def _take(self, graph: Graph, drv: Digest, wish: Isolation) -> bool:
        for cache in self.caches:
            if cache.name in self._broken:
                continue
            try:
                if self._from(cache, graph, drv, wish):
                    self.taken[drv] = cache.name
                    self.reporter.emit(
                        "substituted", name=graph.nodes[drv].name, drv=str(drv), cache=cache.name
                    )
                    return True
            except ReprobuildError as error:
                if error.code in ("E-INTERRUPTED", "E-STORE-WRITE", "E-DISK-SPACE"):
                    raise
                self._broken.add(cache.name)
                self._note(f"{cache.name} is not asked any more: {error.message}")
        return False

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.reporter.emit("note", text=text)

    def _from(self, cache: Substituter, graph: Graph, drv: Digest, wish: Isolation) -> bool:
        entry = cache.entry(drv)
        if entry is None:
            return False
        node = graph.nodes[drv]
        record = entry.record
        if record.drv != drv or set(record.outputs) != set(node.outputs):
            raise ReprobuildError(
                "E-BUNDLE", f"what it says of {node.name} is about another recipe"
            )
        if not entry.trusted(self.trust):
            self._note(f"{cache.name} has {node.name}, but no key that is trusted here signed it")
            return False
        if not record.isolation.satisfies(wish):
            return False
        fixed = node.fixed
        if fixed is not None and fixed.tree is not None and record.outputs["out"] != fixed.tree:
            raise ReprobuildError("E-BUNDLE", f"it has another tree for {node.name}")
        if not all(self.store.contains(tree) for tree in record.outputs.values()):
            with cache.bundle(entry) as bundle:
                Importer(self.store).run(bundle, trusted=True, keep=False)
        absent = [str(t) for t in record.outputs.values() if not self.store.contains(t)]
        if absent:
            raise ReprobuildError(
                "E-BUNDLE-INCOMPLETE", f"its bundle for {node.name} lacks {absent[0]}"
            )
        self.store.add_derivations(documents(graph, [drv]))
        self.store.barrier()
        self.store.add_record(record)
        self.store.choose(drv, record)
        return True


def cache_shipment(store: TransferStore, record: Record) -> tuple[str, Shipment]:
    """(bundle name, what it holds) for one record: its output trees and nothing else.

    The name is the digest of the trees' closure, so equal results are stored once.
    """
    closure = Closure.of(tree.hex for tree in record.outputs.values())
    manifest = Manifest(kind=RUNTIME, keep=closure, outputs={})
    return closure.digest.hex, Exporter(store).ship(manifest, {}, (), Held())


def to_push(
    store: TransferStore, graph: Graph, targets: Iterable[Digest]
) -> tuple[list[Record], int]:
    """(records of what was made below the targets and is here, how many recipes have none).

    Each is of its own recipe: a cut-off stands on the record of another with the same action, and
    who asks a cache knows the recipe alone.
    """
    found, absent = [], 0
    for drv in sorted(graph.closure(targets)):
        if not is_made(graph.nodes[drv]):
            continue
        record = store.realized(drv)
        if record is not None and all(store.contains(t) for t in record.outputs.values()):
            name = graph.nodes[drv].name
            found.append(record if record.drv == drv else replace(record, drv=drv, name=name))
        else:
            absent += 1
    return found, absent
