"""Whether what came out is what came out elsewhere: for rebuilds from an imported bundle.

A bundle says of every recipe what it came out as where the bundle was made. A rebuild without any
record has nothing else to be compared with, since the trees in between were never carried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reprobuild.core.bundle.manifest import parse_manifest
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, decode
from reprobuild.core.record import Record
from reprobuild.core.wording import plural
from reprobuild.engine.inventory import IMPORT
from reprobuild.errors import ReprobuildError

Outputs = tuple[tuple[str, str], ...]


class Roots(Protocol):
    """The little that is asked of a store."""

    def roots(self) -> Sequence[str]:
        """The names of all roots."""
        ...

    def root(self, name: str) -> bytes | None:
        """A root's document."""
        ...

    def realized(self, drv: Digest) -> Record | None:
        """The record last chosen for a derivation."""
        ...


@dataclass(frozen=True, slots=True)
class Compared:
    """Recipes by how they came out: as known, otherwise (by name), or with nothing to compare."""

    equal: int
    different: Mapping[str, tuple[str, ...]]
    unknown: int

    def document(self) -> dict[str, Value]:
        """For `--json`."""
        return {
            "different": {name: list(trees) for name, trees in self.different.items()},
            "equal": self.equal,
            "unknown": self.unknown,
        }


def known_outputs(store: Roots, drvs: Iterable[Digest]) -> dict[Digest, set[Outputs]]:
    """What recipes are known to come out as: by imported bundles and by this store's records."""
    known: dict[Digest, set[Outputs]] = {}
    for name in store.roots():
        if not name.startswith(IMPORT):
            continue
        document = decode(store.root(name) or b"null")
        manifest = document.get("manifest") if isinstance(document, dict) else None
        if isinstance(manifest, dict):
            for drv, expected in parse_manifest(manifest).expected.items():
                known.setdefault(drv, set()).add(_outputs(expected.outputs))
    for drv in drvs:
        record = store.realized(drv)
        if record is not None:
            known.setdefault(drv, set()).add(_outputs(record.outputs))
    return known


def _outputs(outputs: Mapping[str, Digest]) -> Outputs:
    return tuple(sorted((name, tree.hex) for name, tree in outputs.items()))


def compare(chosen: Mapping[Digest, Record], known: Mapping[Digest, set[Outputs]]) -> Compared:
    """Sets what was chosen in this run against what is known."""
    equal, unknown = 0, 0
    different: dict[str, tuple[str, ...]] = {}
    for drv, record in chosen.items():
        before = known.get(drv)
        if not before:
            unknown += 1
        elif before == {_outputs(record.outputs)}:
            equal += 1
        else:
            here = [f"here {n} {t}" for n, t in _outputs(record.outputs)]
            there = [f"known {n} {t}" for outputs in sorted(before) for n, t in outputs]
            different[f"{record.name} {drv.short}"] = (*here, *there)
    return Compared(equal, dict(sorted(different.items())), unknown)


def require_equal(compared: Compared) -> None:
    """Raises E-NOT-REPRODUCIBLE when anything came out otherwise than is known."""
    if compared.different:
        raise ReprobuildError(
            "E-NOT-REPRODUCIBLE",
            f"{plural(len(compared.different), 'output')} came out differently from what "
            f"is known, {compared.equal} equal",
            different=[f"{n}: {', '.join(t)}" for n, t in compared.different.items()],
        )
