"""Recorded resolutions: reviewed answers to conflicts, keyed by the blobs they resolve."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import (
    ConflictedPath,
    MergeOutcome,
    PatchReader,
    Repository,
    Stage,
)
from reprobuild.core.integration.model import Resolution
from reprobuild.errors import ReprobuildError


def blob_oid(content: bytes, like: GitOid) -> GitOid:
    """The git name of a blob, in the object format of `like`."""
    algorithm = "sha1" if len(like.hex) == 40 else "sha256"
    hasher = hashlib.new(algorithm, b"blob %d\0" % len(content), usedforsecurity=False)
    hasher.update(content)
    return GitOid(hasher.hexdigest())


def _oid(stage: Stage | None) -> GitOid | None:
    return None if stage is None else stage.oid


def applies(resolution: Resolution, conflict: ConflictedPath) -> bool:
    """Whether the resolution is for exactly these blobs at exactly this path."""
    return resolution.path.encode("utf-8", "surrogateescape") == conflict.path and (
        resolution.ancestor,
        resolution.ours,
        resolution.theirs,
    ) == (_oid(conflict.ancestor), _oid(conflict.ours), _oid(conflict.theirs))


def settle(
    repository: Repository,
    outcome: MergeOutcome,
    resolutions: Sequence[Resolution],
    read: PatchReader,
) -> tuple[GitOid, tuple[Resolution, ...]] | None:
    """The tree with every conflicted path taken from a resolution, and which; None when one lacks.

    Raises E-PATCH when a resolution's content is not the blob that was recorded.
    """
    if not resolutions:
        return None
    edits: dict[bytes, tuple[int, bytes] | None] = {}
    used: list[Resolution] = []
    for conflict in outcome.conflicts:
        match = next((r for r in resolutions if applies(r, conflict)), None)
        if match is None:
            return None
        used.append(match)
        if match.result is None:
            edits[conflict.path] = None
            continue
        content = resolved_content(match, read)
        edits[conflict.path] = (0o100755 if match.executable else 0o100644, content)
    return repository.edit(outcome.tree, edits), tuple(used)


def resolved_content(resolution: Resolution, read: PatchReader) -> bytes:
    """The recorded answer of a resolution that has one, as its `result` says; raises E-PATCH."""
    assert resolution.result is not None
    content = read(resolution.content_path)
    if blob_oid(content, resolution.result) != resolution.result:
        raise ReprobuildError(
            "E-PATCH",
            f"the resolution of {resolution.path} was changed after it was recorded",
            hint="record it anew with `reprobuild integrate --resolve`",
            file=resolution.content_path,
        )
    return content
