"""From what `lock` wants to what is pinned, once it is known where the refs point."""

from __future__ import annotations

from collections.abc import Mapping

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.model import (
    HeadSpec,
    IntegrationSpec,
    SourceRequest,
    check_ref,
)
from reprobuild.errors import ReprobuildError


def full_ref(ref: str) -> str:
    """A branch name made a full ref; full refs stay. Raises E-REF."""
    return check_ref(ref if ref.startswith("refs/") else f"refs/heads/{ref}")


def refs_wanted(request: SourceRequest) -> tuple[str, ...]:
    """The refs whose targets must be known: of everything that is not pinned by commit."""
    wanted = [] if request.rev is not None else [full_ref(request.ref)]
    wanted += [full_ref(h.full_ref) for h in request.heads if h.rev is None]
    if request.composition_ref and request.composition is None:
        wanted.append(full_ref(request.composition_ref))
    return tuple(dict.fromkeys(wanted))


def pinned_spec(request: SourceRequest, refs: Mapping[str, GitOid]) -> IntegrationSpec:
    """The spec with every commit filled in; raises E-REF-MISSING for a ref that is not there."""

    def target(ref: str, owner: str) -> GitOid:
        name = full_ref(ref)
        if name not in refs:
            raise ReprobuildError(
                "E-REF-MISSING",
                f"{request.url or 'the repository'} has no {name} ({owner})",
                ref=name,
            )
        return refs[name]

    composition = request.composition
    if composition is None and request.composition_ref:
        composition = target(request.composition_ref, "the composition")
    return IntegrationSpec(
        strategy=request.strategy,
        base=request.rev or target(request.ref, "the base"),
        heads=tuple(
            HeadSpec(
                h.number,
                h.rev or target(h.full_ref, f"PR #{h.number}"),
                h.title,
                h.ref,
                h.commits,
            )
            for h in request.heads
        ),
        patches=request.patches,
        exclusions=request.exclusions,
        resolutions=request.resolutions,
        composition=composition,
        composition_ref=request.composition_ref,
    )
