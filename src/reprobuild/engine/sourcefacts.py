"""Where a component's source comes from, as labels and the statement say it."""

from __future__ import annotations

from reprobuild.core.flake import FixtureInput, Flake, GitInput, Source
from reprobuild.core.kinds.labels import SourceFacts
from reprobuild.core.lock import GitPin, Lock, PinnedSource


def integrated_facts(flake: Flake, wanted: Source, pin: PinnedSource) -> SourceFacts:
    """Base, heads and trees of a source that an output integrates."""
    titles = {head.number: head.title for head in wanted.heads}
    return SourceFacts(
        repository=_repository(flake.inputs[wanted.input]),
        ref=pin.base_ref,
        base=pin.base,
        tree=pin.tree,
        strategy=pin.strategy,
        heads=[(h.number, h.head, h.disposition, titles.get(h.number, "")) for h in pin.heads],
        patch_sha256=pin.patch_sha256,
        patch_digest=pin.patch_digest,
        resolutions=[(r.path, r.result or "removed", r.author, r.reason) for r in pin.resolutions],
    )


def plain_facts(flake: Flake, lock: Lock | None, name: str | None) -> SourceFacts | None:
    """A git input as it is; None for any other, and for none."""
    pin = lock.inputs.get(name) if lock and name else None
    if name is None or not isinstance(pin, GitPin):
        return None
    return SourceFacts(_repository(flake.inputs[name]), pin.ref, pin.rev, pin.tree)


def _repository(declared: object) -> str:
    if isinstance(declared, FixtureInput):
        return f"fixture:{declared.path}"
    return declared.url if isinstance(declared, GitInput) else ""
