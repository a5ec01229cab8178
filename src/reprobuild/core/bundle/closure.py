"""Closures: what a bundle brings, as one digest, so that 32 bytes can say that all of it is here.

A closure names trees, derivations and records; its digest is over their sorted lists. Whoever has
made or received the same closure knows its digest; to everybody else it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reprobuild.core.digest import Digest, document_digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError

DOMAIN = "reprobuild/closure/v0"


@dataclass(frozen=True, slots=True)
class Closure:
    """Hex digests, sorted: trees (each with all below it), derivations, `action/record`."""

    trees: tuple[str, ...] = ()
    drvs: tuple[str, ...] = ()
    records: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, trees: Iterable[str], drvs: Iterable[str] = (), records: Iterable[str] = ()
    ) -> Closure:
        """The closure of these, sorted and each once."""
        return cls(tuple(sorted(set(trees))), tuple(sorted(set(drvs))), tuple(sorted(set(records))))

    @classmethod
    def parse(cls, value: Value) -> Closure:
        """From the `keep` of a root or manifest; raises E-BUNDLE for anything else."""
        if not isinstance(value, Mapping) or not set(value) <= {"trees", "drvs", "records"}:
            raise ReprobuildError("E-BUNDLE", "a closure names trees, drvs and records, no more")
        lists: dict[str, list[str]] = {}
        for key in ("trees", "drvs", "records"):
            items = value.get(key, [])
            if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
                raise ReprobuildError("E-BUNDLE", f"a closure's {key} are no list of texts")
            parts = [part for item in items for part in str(item).split("/")]
            if key == "records" and len(parts) != 2 * len(items):
                raise ReprobuildError("E-BUNDLE", "a closure's records are action/record")
            lists[key] = [str(item) for item in items]
            for part in parts:
                Digest.parse(part)
        return cls.of(lists["trees"], lists["drvs"], lists["records"])

    @property
    def content(self) -> Closure:
        """Without records: what inventories speak of, since a store that trusts nobody's records
        has the content all the same."""
        return Closure(self.trees, self.drvs)

    def document(self) -> dict[str, Value]:
        """The form that is hashed, and that roots keep."""
        return {
            "drvs": list(self.drvs),
            "records": list(self.records),
            "trees": list(self.trees),
        }

    @property
    def digest(self) -> Digest:
        """What names it."""
        return document_digest(DOMAIN, self.document())
