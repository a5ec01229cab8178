"""What a repair had to give up, got again: from binary caches, or by building it once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reprobuild.core.bundle.signing import Trust
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.record import Record
from reprobuild.engine.realize import Realizer, Wishes
from reprobuild.engine.scheduler import Limits
from reprobuild.engine.substitute import Substituter
from reprobuild.engine.transfer_import import Importer
from reprobuild.engine.transferport import TransferStore
from reprobuild.errors import ReprobuildError


@dataclass(slots=True)
class Rescued:
    """Names of recipes, in the order in which they were tried; and why the others stay lost."""

    fetched: list[str] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Rescuer:
    """Tries for the results of `lost` records. The caller holds the lease."""

    store: TransferStore
    caches: Sequence[Substituter] = ()
    trust: Trust | None = None
    realizer: Realizer | None = None
    graph: Graph = field(default_factory=Graph)
    """What can be built here: the recipes of a project."""

    def run(self, lost: Iterable[Record], limits: Limits) -> Rescued:
        """Never raises for one that cannot be had: it is named, with the reason."""
        result = Rescued()
        for record in lost:
            name = record.name or str(record.drv)
            if self._whole(record):  # came with another
                result.fetched.append(name)
                continue
            reasons = [reason for cache in self.caches if (reason := self._fetch(cache, record))]
            if self._whole(record):
                result.fetched.append(name)
                continue
            if self.realizer is not None:
                reasons.append(self._build(self.realizer, record, limits))
                if self._whole(record):
                    result.rebuilt.append(name)
                    continue
            result.failed[name] = "; ".join(filter(None, reasons)) or "nobody was asked"
        return result

    def _whole(self, record: Record) -> bool:
        return all(self.store.contains(tree) for tree in record.outputs.values())

    def _fetch(self, cache: Substituter, record: Record) -> str:
        """Takes the very trees from a cache; why not, else."""
        if self._whole(record):
            return ""
        try:
            entry = cache.entry(record.drv)
            if entry is None:
                return f"{cache.name} does not have it"
            if self.trust is None or not entry.trusted(self.trust):
                return f"no key that is trusted here signed what {cache.name} has"
            if dict(entry.record.outputs) != dict(record.outputs):
                return f"{cache.name} has another result of it"
            with cache.bundle(entry) as bundle:
                Importer(self.store).run(bundle, trusted=True, keep=False)
            self.store.barrier()
        except ReprobuildError as error:
            if error.code in ("E-INTERRUPTED", "E-STORE-WRITE", "E-DISK-SPACE"):
                raise
            return f"{cache.name}: {error.message}"
        return "" if self._whole(record) else f"the bundle of {cache.name} lacks a part"

    def _build(self, realizer: Realizer, record: Record, limits: Limits) -> str:
        if record.drv not in self.graph.nodes:
            return "no recipe of this project makes it"
        try:
            realizer.realize(self.graph, [record.drv], Wishes(record.isolation, limits))
        except ReprobuildError as error:
            if error.code in ("E-INTERRUPTED", "E-STORE-WRITE", "E-DISK-SPACE"):
                raise
            return error.message
        return "" if self._whole(record) else "a rebuild came out differently"


def bottom_first(lost: Iterable[Record], graph: Graph) -> list[Record]:
    """Sources before what is made of them, as far as the graph knows; others first, by name."""
    order = {drv: number for number, drv in enumerate(graph.order(_known(lost, graph)))}
    return sorted(lost, key=lambda r: (order.get(r.drv, -1), r.name, r.drv.hex))


def _known(lost: Iterable[Record], graph: Graph) -> list[Digest]:
    return [record.drv for record in lost if record.drv in graph.nodes]
