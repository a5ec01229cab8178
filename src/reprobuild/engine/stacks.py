"""The stack of a component as its flake declares it, whether it is pinned or not.

A stack that does not fit cannot be pinned, and is the one that people want explained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.flake import FixtureInput, Flake, GitInput
from reprobuild.core.integration.model import IntegrationSpec, SourceRequest
from reprobuild.core.lock import GitPin, Lock, PinnedSource
from reprobuild.core.origins import git_place, integrated_source, spec_digest
from reprobuild.engine.pinning import source_request


class StackDiscovery(Protocol):
    """Where refs are now."""

    def spec(self, declared: GitInput | FixtureInput, request: SourceRequest) -> IntegrationSpec:
        """Every commit of a stack; what the request leaves open is looked up."""
        ...

    def text(self, declared: FixtureInput) -> Digest:
        """The digest of a fixture's text."""
        ...


@dataclass(frozen=True, slots=True)
class DeclaredStack:
    """Where a component's source is and what is asked for.

    `tree` is what was promised: by the lock, else by the flake, else nobody. `pinned` says whether
    the lock has this very stack.
    """

    component: str
    origin: Mapping[str, Value]
    spec: IntegrationSpec
    tree: str | None
    pinned: bool


def declared_stack(
    flake: Flake, lock: Lock | None, output: str, component: str, git: StackDiscovery
) -> DeclaredStack:
    """The stack of `output`'s `component`: the lock's where that is for the present declaration,
    else what `lock` would try to pin, with the base and the heads that the lock has already.

    Raises E-REF-MISSING, E-OFFLINE, E-GIT-FETCH where a ref has to be looked up.
    """
    source = flake.outputs[output].sources[component]
    declared = flake.inputs[source.input]
    assert isinstance(declared, (GitInput, FixtureInput))
    pins = lock.outputs.get(output) if lock is not None else None
    known: PinnedSource | None = pins.sources.get(component) if pins is not None else None
    if lock is not None and isinstance(declared, FixtureInput):
        before = lock.inputs.get(source.input)
        if not isinstance(before, GitPin) or before.text != git.text(declared).hex:
            known = None  # its commits follow its text: nothing pinned from the old one is there
    request = source_request(declared, source, known)
    if known is not None and known.spec == spec_digest(source).hex:
        origin = integrated_source(component, declared, source, known).origin
        spec = replace(IntegrationSpec.parse(origin), exclusions=request.exclusions)
        return DeclaredStack(component, origin, spec, known.tree, True)
    spec = git.spec(declared, request)
    origin = {**git_place(declared), "ref": source.base or declared.ref, **spec.document()}
    return DeclaredStack(component, origin, spec, source.tree, False)
