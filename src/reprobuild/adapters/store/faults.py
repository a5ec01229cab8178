"""The errors of an object that is not as it should be."""

from __future__ import annotations

from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that or pathlib
if TYPE_CHECKING:
    from pathlib import Path


def missing(kind: str, hex_digest: str) -> ReprobuildError:
    """The E-STORE-MISSING of an object."""
    return ReprobuildError(
        "E-STORE-MISSING",
        f"the {kind} blake3:{hex_digest} is not in the store",
        object=f"{kind} {hex_digest}",
    )


def damaged(kind: str, hex_digest: str, path: str | Path, reason: str) -> ReprobuildError:
    """The E-STORE-DAMAGED of an object."""
    return ReprobuildError(
        "E-STORE-DAMAGED",
        f"the {kind} blake3:{hex_digest} is damaged: {reason} ({path})",
        object=f"{kind} {hex_digest}",
        path=str(path),
        reason=reason,
    )
