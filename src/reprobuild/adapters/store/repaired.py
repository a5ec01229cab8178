"""What a repair did, and putting back what it took once the content is here again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reprobuild.adapters.store.records import Records
from reprobuild.adapters.store.roots import Keep, Roots, parse_keep, with_keep
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record


@dataclass(slots=True)
class Repaired:
    """What was done, each list sorted; objects by digest.

    `restored` names objects that were brought back; `incomplete` names trees that went because
    something below them is gone, `roots` those that keep less than before (or are gone, when
    nothing is left), `left` what is off and stays.
    """

    restored: list[str] = field(default_factory=list)
    blobs: list[str] = field(default_factory=list)
    trees: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    drvs: list[str] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    memos: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    materialised: list[str] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    """Paths of what is left and keeps collection or a repair from its work: nobody but a person
    can tell what it is."""
    lost: list[Record] = field(default_factory=list)
    """Whole records whose trees are not."""
    cut: dict[str, bytes] = field(default_factory=dict)
    """Roots that lost something, as they were."""

    def lists(self) -> dict[str, list[str]]:
        """What was done, by kind."""
        names = [name for name in Repaired.__slots__ if name not in ("lost", "cut", "stops")]
        return {name: getattr(self, name) for name in names}


def readmit(
    records: Records, roots: Roots, repaired: Repaired, whole: Callable[[str], bool]
) -> None:
    """Puts back what `repair` took of records and roots, as far as the content is here again.

    `whole` says whether a tree is here. The caller holds the lease.
    """
    back = [r for r in repaired.lost if all(whole(tree.hex) for tree in r.outputs.values())]
    records.add_all(back)
    for record in back:
        if records.chosen(record.drv) is None:
            records.choose(record.drv, record)
    for name, document in repaired.cut.items():
        before = parse_keep(name, document)
        now = roots.read(name)
        after = parse_keep(name, now) if now is not None else Keep()
        trees = {t for t in before.trees if whole(t)}
        drvs = {d for d in before.drvs if records.derivation(Digest(d)) is not None}
        here = {reference for reference in before.records if records.has(reference)}
        keep = Keep(
            tuple(sorted(trees | set(after.trees))),
            tuple(sorted(drvs | set(after.drvs))),
            tuple(sorted(here | set(after.records))),
        )
        if keep != after and keep != Keep():
            roots.write(name, with_keep(now if now is not None else document, keep))
