"""Finding the base that a published form does not name, by the tree that it does name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import PatchReader, Repository
from reprobuild.core.integration.model import IntegrationSpec, Strategy
from reprobuild.core.integration.strategies import Stack, apply_source_patch, no_patches
from reprobuild.errors import ReprobuildError

LIMIT = 2000
_PASSED_OVER = frozenset({"E-CONFLICT", "E-INTEGRATION", "E-PATCH", "E-ANCESTRY"})


def find_base(
    repository: Repository,
    spec: IntegrationSpec,
    tree: GitOid,
    read: PatchReader = no_patches,
) -> GitOid | None:
    """The newest commit of the base's line (its first parents, from `spec.base` backwards, at most
    LIMIT) on which the heads give `tree`; None when there is none.

    A commit that holds a head already cannot be skipped: heads land one after the other, and the
    published tree may have been made before or after.
    """
    if spec.strategy is Strategy.PINNED_BRANCH:
        return spec.base
    for commit in _line(repository, spec.base):
        try:
            found = _tree(repository, replace(spec, base=commit), read)
        except ReprobuildError as error:
            if error.code not in _PASSED_OVER:
                raise
            continue
        if found == tree:
            return commit
    return None


def _tree(repository: Repository, spec: IntegrationSpec, read: PatchReader) -> GitOid | None:
    stack = Stack.start(repository, spec, read).fresh()
    for head in spec.heads:
        if stack.push(head).failed:
            return None
    tree = stack.tree
    for index, patch in enumerate(spec.patches):
        tree = apply_source_patch(repository, tree, index, patch, read)
    return tree


def _line(repository: Repository, tip: GitOid) -> Iterator[GitOid]:
    here: GitOid | None = tip
    for _ in range(LIMIT):
        if here is None or not repository.has_commit(here):
            return
        yield here
        parents = repository.commit(here).parents
        here = parents[0] if parents else None
