"""Patch files of a project, pinned by their digests."""

from __future__ import annotations

import hashlib

from reprobuild.core.integration.backend import PatchReader
from reprobuild.core.integration.model import SourcePatch
from reprobuild.errors import ReprobuildError


def source_patch(index: int, patch: SourcePatch, read: PatchReader) -> bytes:
    """A digest-pinned patch, read; raises E-PATCH where it is gone or another."""
    content = read(patch.path)
    actual = hashlib.sha256(content).hexdigest()
    if actual != patch.sha256.hex:
        raise ReprobuildError(
            "E-PATCH",
            f"source patch #{index + 1} digest mismatch: expected {patch.sha256.hex}, got {actual}",
            file=patch.path,
            expected=patch.sha256.hex,
            got=actual,
        )
    return content
