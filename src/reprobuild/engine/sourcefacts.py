"""Where a component's source comes from, as labels and the statement say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reprobuild.core.flake import FixtureInput, GitInput
from reprobuild.core.kinds.labels import SourceFacts
from reprobuild.core.lock import GitPin

if TYPE_CHECKING:
    from reprobuild.engine.evaluate import Evaluator


def source_facts(evaluator: Evaluator, component: str) -> SourceFacts | None:
    """Base, heads and trees of a component in an output; None where it has no pinned source."""
    wanted = evaluator.output.sources.get(component)
    if wanted is None:
        return _plain(evaluator, component)
    pin = evaluator.pinned.sources.get(component)
    if pin is None:
        return None
    declared = evaluator.flake.inputs[wanted.input]
    titles = {head.number: head.title for head in wanted.heads}
    return SourceFacts(
        repository=_repository(declared),
        ref=pin.base_ref,
        base=pin.base,
        tree=pin.tree,
        strategy=pin.strategy,
        heads=[(h.number, h.head, h.disposition, titles.get(h.number, "")) for h in pin.heads],
        patch_sha256=pin.patch_sha256,
        patch_digest=pin.patch_digest,
        resolutions=[(r.path, r.result or "removed", r.author, r.reason) for r in pin.resolutions],
    )


def _plain(evaluator: Evaluator, component: str) -> SourceFacts | None:
    name = evaluator.components[component].input
    pin = evaluator.lock.inputs.get(name) if evaluator.lock and name else None
    if name is None or not isinstance(pin, GitPin):
        return None
    return SourceFacts(_repository(evaluator.flake.inputs[name]), pin.ref, pin.rev, pin.tree)


def _repository(declared: object) -> str:
    if isinstance(declared, FixtureInput):
        return f"fixture:{declared.path}"
    return declared.url if isinstance(declared, GitInput) else ""
