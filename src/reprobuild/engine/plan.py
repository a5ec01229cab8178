"""plan: what a realize would do, and why. Looks things up; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from reprobuild.core.derivation import Derivation, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.record import Record
from reprobuild.ports import Catalog, ContentStore


class Deed(StrEnum):
    """What is done about a derivation."""

    REUSE = "reuse"
    FETCH = "fetch"
    BUILD = "build"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One derivation of a plan; `record` for what is reused."""

    drv: Digest
    deed: Deed
    reason: str
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in an order in which they can be taken. What lies below a reuse is left out."""

    steps: tuple[PlanStep, ...]

    def of(self, deed: Deed) -> tuple[PlanStep, ...]:
        """The steps of one deed."""
        return tuple(step for step in self.steps if step.deed == deed)


def usable(content: ContentStore, record: Record, wish: Isolation) -> bool:
    """Whether a record may stand for a build: isolated well enough, and its trees are here."""
    return record.isolation.satisfies(wish) and all(
        content.contains(tree) for tree in record.outputs.values()
    )


def make_plan(
    graph: Graph,
    targets: Iterable[Digest],
    content: ContentStore,
    catalog: Catalog,
    wish: Isolation,
    *,
    rebuild: frozenset[Digest] = frozenset(),
    from_source: bool = False,
) -> Plan:
    """From the targets down: what is on record is reused, and nothing below it is looked at.

    `rebuild` names derivations to build whatever is on record; `from_source` forgets every
    record but those of files and images that were fetched: an integration is made again.
    """
    found: dict[Digest, Record | None] = {}
    stack = list(targets)
    while stack:
        drv = stack.pop()
        if drv in found:
            continue
        derivation = graph.nodes[drv]
        record = None
        if drv not in rebuild and not (from_source and is_made(derivation)):
            record = catalog.realized(drv)
            if record is not None and not _settled(record, content, catalog, wish):
                record = None
        found[drv] = record
        if record is None:
            stack.extend(entry.drv for entry in derivation.inputs)
    steps: list[PlanStep] = []
    for drv in _order(graph, found):
        record = found[drv]
        if record is not None:
            steps.append(PlanStep(drv, Deed.REUSE, "on record", record))
            continue
        derivation = graph.nodes[drv]
        if derivation.fixed is not None:
            steps.append(PlanStep(drv, Deed.FETCH, _fetch_reason(derivation)))
        else:
            steps.append(PlanStep(drv, Deed.BUILD, _build_reason(derivation, graph, found)))
    return Plan(tuple(steps))


def is_made(derivation: Derivation) -> bool:
    """Whether it is made of other content – built, or integrated – rather than only obtained."""
    return derivation.fixed is None or derivation.fixed.kind == "git-tree"


def _settled(record: Record, content: ContentStore, catalog: Catalog, wish: Isolation) -> bool:
    """Whether a memo may be followed: usable, and no usable record of its action disagrees.

    What is not settled goes the long way, where the disagreement is found again and reported.
    """
    return usable(content, record, wish) and all(
        dict(other.outputs) == dict(record.outputs) or not usable(content, other, wish)
        for other in catalog.records(record.action)
    )


_BY_HEX = attrgetter("hex")  # the order of digests, without a comparison in Python for each pair


def _order(graph: Graph, found: dict[Digest, Record | None]) -> list[Digest]:
    """Inputs before what needs them; ties by digest. Depth first, so that it is linear."""
    order: list[Digest] = []
    done: set[Digest] = set()
    for start in sorted(found, key=_BY_HEX):
        stack: list[tuple[Digest, bool]] = [(start, False)]
        while stack:
            drv, left = stack.pop()
            if left:
                order.append(drv)
                continue
            if drv in done or drv not in found:
                continue
            done.add(drv)
            stack.append((drv, True))
            if found[drv] is None:
                needs = {entry.drv for entry in graph.nodes[drv].inputs}
                stack.extend((need, False) for need in sorted(needs, key=_BY_HEX, reverse=True))
    return order


_CONTENT = {
    "fixture": "the tree of its fixture",
    "git": "its git tree",
    "path": "its directory",
}
"""What is fetched, in words, by the kind of its origin."""


def _fetch_reason(derivation: Derivation) -> str:
    origin = derivation.origin
    kind = str(origin.get("kind", ""))
    what = origin.get("filename") or origin.get("reference") or _CONTENT.get(kind, "its content")
    if origin.get("heads"):
        what = "its integrated tree"
    return f"{what} is not in the store"


def _build_reason(derivation: Derivation, graph: Graph, found: dict[Digest, Record | None]) -> str:
    missing = [graph.nodes[e.drv].name for e in derivation.inputs if found[e.drv] is None]
    if not missing:
        return "this recipe with these inputs is not on record"
    first = missing[0]
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"waits for {first}{more}"
