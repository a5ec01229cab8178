"""The integrate use case: apply heads, explain what does not fit, map the stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from reprobuild.core.digest import GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.absorb import Absorption, absorptions
from reprobuild.core.integration.algebra import Algebra, analyze
from reprobuild.core.integration.backend import PatchReader, Repository
from reprobuild.core.integration.conflict import Explanation, explain
from reprobuild.core.integration.model import Integration, IntegrationSpec, Strategy
from reprobuild.core.integration.moved import MovedHead, both_sides, moved_heads
from reprobuild.core.integration.strategies import Stack, integrate
from reprobuild.engine.gitport import SourceRepositories
from reprobuild.errors import Fact, ReprobuildError


@dataclass(frozen=True, slots=True)
class Outcome:
    """An integration, or the error that stopped it with what explains it."""

    integration: Integration | None
    error: ReprobuildError | None = None
    explanation: Explanation | None = None


def attempt(repository: Repository, spec: IntegrationSpec, read: PatchReader) -> Outcome:
    """Integrates; a conflict comes back explained, anything else is raised."""
    try:
        return Outcome(integrate(repository, spec, read))
    except ReprobuildError as error:
        if error.code != "E-CONFLICT":
            raise
        stack = Stack.start(repository, spec, read).fresh()
        for head in spec.heads:
            try:
                step = stack.push(head)
            except ReprobuildError:
                return Outcome(None, error)
            if step.failed:
                return Outcome(None, error, explain(stack, step))
        raise


@dataclass(frozen=True, slots=True)
class StackMap:
    """A stack's algebra, and what the base already holds of it."""

    algebra: Algebra
    absorbed: tuple[Absorption, ...]
    newer_base: GitOid | None = None
    by_newer_base: tuple[Absorption, ...] = ()

    def document(self) -> dict[str, object]:
        """The plain form."""
        out = {**self.algebra.document(), "absorbed": [a.document() for a in self.absorbed]}
        if self.newer_base is not None:
            out["newer_base"] = {
                "commit": self.newer_base.hex,
                "absorbed": [a.document() for a in self.by_newer_base],
            }
        return out


def map_stack(
    origin: Mapping[str, Value],
    spec: IntegrationSpec,
    sources: SourceRepositories,
    read: PatchReader,
    *,
    newer_base: GitOid | None = None,
) -> StackMap:
    """Analyzes a stack; with `newer_base` also says which heads that commit would absorb."""
    with sources.open(origin, spec) as repository:
        found = StackMap(analyze(repository, spec, read), tuple(absorptions(repository, spec)))
    if newer_base is None or newer_base == spec.base:
        return found
    with sources.open(origin, replace(spec, base=newer_base)) as repository:
        later = tuple(absorptions(repository, spec, newer_base))
    return replace(found, newer_base=newer_base, by_newer_base=later)


def look_for_moved(
    origin: Mapping[str, Value], spec: IntegrationSpec, sources: SourceRepositories
) -> list[MovedHead]:
    """The heads whose refs point elsewhere now, each with its range-diff where it can be had."""
    refs = sources.resolve(str(origin["url"]), [h.full_ref for h in spec.heads])
    return [_with_range_diff(origin, spec, sources, m) for m in moved_heads(spec, refs)]


def _with_range_diff(
    origin: Mapping[str, Value],
    spec: IntegrationSpec,
    sources: SourceRepositories,
    moved: MovedHead,
) -> MovedHead:
    wanted = both_sides(spec, moved)
    if wanted is None or moved.live is None:
        return moved
    try:
        with sources.open(origin, wanted) as repository:
            text = repository.range_diff(spec.base, moved.pinned, moved.live)
    except ReprobuildError:
        return moved  # the old commit may be gone for good: the two names still say it
    return replace(moved, range_diff=text)


Trial = Callable[[GitOid], ReprobuildError | None]
"""How a command fails on an integration tree; None where it passes."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first head with which the command fails; `runs` is (heads applied, passed) in order.

    `failure` is how it fails there, with the log of it among the facts.
    """

    number: int
    runs: tuple[tuple[int, bool], ...]
    failure: ReprobuildError

    def document(self) -> dict[str, object]:
        """The plain form."""
        return {
            "first_bad": self.number,
            "runs": [{"heads": heads, "passed": passed} for heads, passed in self.runs],
            **_said(self.failure),
        }


def bisect(spec: IntegrationSpec, done: Integration, trial: Trial) -> Culprit:
    """The first head with which `trial` fails, by halving; each tree is tried once.

    Raises E-BISECT when it fails on the base already, or passes on the whole stack.
    """
    if spec.strategy is Strategy.PINNED_BRANCH or not spec.heads or done.base_tree is None:
        raise ReprobuildError("E-USAGE", "there is no stack of heads to bisect")
    trees = [done.base_tree, *done.tips]
    tried: dict[GitOid, ReprobuildError | None] = {}
    runs: list[tuple[int, bool]] = []

    def failure(count: int) -> ReprobuildError | None:
        tree = trees[count]
        if tree not in tried:
            tried[tree] = trial(tree)
            runs.append((count, tried[tree] is None))
        return tried[tree]

    low, high = 0, len(spec.heads)
    last = failure(high)
    if last is None:
        raise ReprobuildError("E-BISECT", "the command passes with every head applied")
    before = failure(low)
    if before is not None:
        error = ReprobuildError("E-BISECT", "the command fails on the base, before any head")
        error.facts |= _said(before)
        raise error
    while high - low > 1:
        middle = (low + high) // 2
        found = failure(middle)
        if found is None:
            low = middle
        else:
            high, last = middle, found
    return Culprit(spec.heads[high - 1].number, tuple(runs), last)


def _said(failure: ReprobuildError) -> dict[str, Fact]:
    """What a failed trial left to read."""
    return {key: failure.facts[key] for key in ("log", "tail") if key in failure.facts}
