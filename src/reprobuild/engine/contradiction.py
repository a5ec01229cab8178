"""One action that came out in two ways: the errors that say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError

Judge = Callable[[Record, Record], list[str]]
"""In words, what two records of one action differ in, and what would cure it."""


def disagreeing(action: Digest, records: Sequence[Record], judge: Judge) -> ReprobuildError:
    """E-NOT-REPRODUCIBLE of usable records of an action that say different things."""
    first = records[0]
    other = next(r for r in records if dict(r.outputs) != dict(first.outputs))
    different = {tuple(sorted((n, t.hex) for n, t in r.outputs.items())) for r in records}
    return ReprobuildError(
        "E-NOT-REPRODUCIBLE",
        f"{first.name} is on record with {len(different)} different results",
        action=str(action),
        trees=sorted({str(t) for r in records for t in r.outputs.values()}),
        verdict=judge(first, other),
        hint="`reprobuild realize --check` builds it once more; `reprobuild store "
        "quarantine` shows what is kept, and takes one out of use",
    )


def contradicting(name: str, other: Record, record: Record, judge: Judge) -> ReprobuildError:
    """E-NOT-REPRODUCIBLE of a build that came out otherwise than an earlier one."""
    return ReprobuildError(
        "E-NOT-REPRODUCIBLE",
        f"{name} came out differently from what is on record",
        action=str(record.action),
        drv=str(record.drv),
        first=sorted(str(t) for t in other.outputs.values()),
        second=sorted(str(t) for t in record.outputs.values()),
        first_ran=_where(other),
        second_ran=_where(record),
        verdict=judge(other, record),
    )


def _where(record: Record) -> str | None:
    """Where a record says that it was made, if not here."""
    return "; ".join(record.notes) if record.isolation is Isolation.REMOTE else None
