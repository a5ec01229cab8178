"""One error for all that failed in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.errors import Exit, ReprobuildError


def was_killed(error: BaseException) -> bool:
    """Whether a build ended for want of memory: at its own limit, or by the machine's killer."""
    return isinstance(error, ReprobuildError) and (
        error.code == "E-BUILD-MEMORY" or error.facts.get("signal") == 9
    )


_FIRST = (
    Exit.INTERRUPTED, Exit.STORE, Exit.ENVIRONMENT, Exit.OFFLINE, Exit.INPUT, Exit.SOURCES,
    Exit.BUILD, Exit.NOT_REPRODUCIBLE, Exit.CHECK,
)  # fmt: skip
"""Which exit status several failures end with: what is to be mended before the others, since these
may be for want of it. It must not depend on which of them was first."""

_HINTS = 3


class SeveralError(ReprobuildError):
    """E-DEPENDENCY for several failures, with the exit status that fits them best.

    Facts: `failed` (a line each), `codes` (theirs, in the same order), `not_tried` (a number),
    `kept` (a line for each directory that was kept).
    """

    def __init__(self, failed: Mapping[str, ReprobuildError], not_tried: int) -> None:
        errors = sorted(failed.values(), key=_rank)
        hints = list(dict.fromkeys(error.hint for error in errors if error.hint))
        super().__init__(
            "E-DEPENDENCY",
            f"{len(failed)} derivations failed",
            hint="; ".join(hints[:_HINTS]) or None,
            failed=[f"{name}: {error}  [{error.code}]" for name, error in failed.items()],
            codes=[error.code for error in failed.values()],
            not_tried=not_tried,
            kept=[f"{name}: {e.facts['kept']}" for name, e in failed.items() if e.facts.get("kept")]
            or None,
        )
        self._exit_status = errors[0].exit_status

    @property
    def exit_status(self) -> int:
        """That of the failure which is to be mended first."""
        return self._exit_status


def _rank(error: ReprobuildError) -> int:
    status = error.exit_status
    return _FIRST.index(Exit(status)) if status in _FIRST else len(_FIRST)


def failure_of(
    graph: Graph, failed: Mapping[Digest, BaseException], skipped: Iterable[Digest]
) -> BaseException:
    """What a run ends with: its failure, E-DEPENDENCY for several, or what is no failure but a bug;
    `skipped` were not tried."""
    others = len(list(skipped))
    known: dict[str, ReprobuildError] = {}
    for drv, error in failed.items():
        if not isinstance(error, ReprobuildError):
            return error
        name = graph.nodes[drv].name
        known[name if name not in known else f"{name} ({drv.short})"] = error
    first = next(iter(known.values()))
    if len(known) == 1:
        if others:
            first.facts.setdefault("not_tried", others)
        return first
    combined = SeveralError(known, others)
    combined.__cause__ = first
    return combined
