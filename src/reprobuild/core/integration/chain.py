"""The merge-stack check: a composed branch is the base plus exactly the expected merges."""

from __future__ import annotations

from collections.abc import Sequence

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Repository
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec
from reprobuild.errors import ReprobuildError


def check_merge_stack(
    repository: Repository,
    spec: IntegrationSpec,
    candidates: Sequence[tuple[GitOid, GitOid]] = (),
) -> None:
    """Walks the composition's first parents back to the base.

    Each step must be a merge whose second parent is the next head from the end, and the merge
    commit where the spec names one. `candidates` (head, integration commit) stand on top of the
    heads: each must be that commit, a merge of its head or a pick. Raises E-ANCESTRY at the first
    step that is not as it should be.
    """
    assert spec.composition is not None
    here = spec.composition
    for head_oid, integrated in reversed(candidates):
        here = _candidate(repository, here, head_oid, integrated)
    for head in reversed(spec.heads):
        here = _step(repository, here, head, spec.base)
    if here != spec.base:
        raise ReprobuildError(
            "E-ANCESTRY",
            f"composition commit {spec.composition} does not descend from base {spec.base} by the "
            f"listed heads alone: their first-parent chain ends at {here}",
            commit=here.hex,
            base=spec.base.hex,
        )


def _candidate(repository: Repository, here: GitOid, head: GitOid, integrated: GitOid) -> GitOid:
    parents = repository.commit(here).parents
    if here != integrated or not parents or (len(parents) > 1 and parents[1:] != (head,)):
        raise ReprobuildError(
            "E-ANCESTRY",
            f"candidate {head} is not where the merge stack should have it: the lock names "
            f"{integrated}, found {here} with parents {', '.join(p.hex for p in parents)}",
            commit=here.hex,
        )
    return parents[0]


def _step(repository: Repository, here: GitOid, head: HeadSpec, base: GitOid) -> GitOid:
    if head.merge_commit is not None and here != head.merge_commit:
        raise _off(head, here, f"the lock names merge commit {head.merge_commit}, found {here}")
    if here == base:
        raise _off(head, here, "the first-parent chain reached the base before it")
    parents = repository.commit(here).parents
    if len(parents) != 2:
        raise _off(head, here, f"{here} has {len(parents)} parents; a merge of the head has two")
    if parents[1] != head.head:
        raise _off(head, here, f"the second parent of {here} is {parents[1]}, not {head.head}")
    return parents[0]


def _off(head: HeadSpec, here: GitOid, why: str) -> ReprobuildError:
    return ReprobuildError(
        "E-ANCESTRY",
        f"PR #{head.number} is not where the merge stack should have it: {why}",
        pull_request=head.number,
        commit=here.hex,
    )
