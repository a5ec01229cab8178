"""One error for all that failed in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.errors import ReprobuildError


def was_killed(error: BaseException) -> bool:
    """Whether a build ended for want of memory: at its own limit, or by the machine's killer."""
    return isinstance(error, ReprobuildError) and (
        error.code == "E-BUILD-MEMORY" or error.facts.get("signal") == 9
    )


def failure_of(
    graph: Graph, failed: Mapping[Digest, BaseException], skipped: Iterable[Digest]
) -> BaseException:
    """What a run ends with: the first failure, or E-DEPENDENCY for several; `skipped` were not
    tried."""
    errors = list(failed.values())
    first = errors[0]
    others = len(list(skipped))
    if len(errors) == 1 or not isinstance(first, ReprobuildError):
        if isinstance(first, ReprobuildError) and others:
            first.facts.setdefault("not_tried", others)
        return first
    lines = [f"{graph.nodes[drv].name}: {error}" for drv, error in failed.items()]
    combined = ReprobuildError(
        "E-DEPENDENCY", f"{len(errors)} derivations failed", failed=lines, not_tried=others
    )
    combined.__cause__ = first
    return combined
