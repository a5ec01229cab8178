"""Which refs locking a flake asks for, so that each repository is asked once."""

from __future__ import annotations

from reprobuild.core.flake import Flake, GitInput
from reprobuild.core.integration.request import full_ref


def refs_of(flake: Flake) -> dict[str, set[str]]:
    """The refs of each repository, by its address, that locking a flake may have to look up."""
    found: dict[str, set[str]] = {}
    for declared in flake.inputs.values():
        if isinstance(declared, GitInput) and declared.rev is None:
            found.setdefault(declared.url, set()).add(full_ref(declared.ref))
    for output in flake.outputs.values():
        for source in output.sources.values():
            declared = flake.inputs[source.input]
            if not isinstance(declared, GitInput):
                continue
            wanted = found.setdefault(declared.url, set())
            if source.base_commit is None:
                wanted.add(full_ref(source.base or declared.ref))
            wanted |= {full_ref(h.full_ref) for h in source.heads if h.head is None}
    return found
