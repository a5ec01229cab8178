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


def damaged(
    kind: str, name: str, path: str | Path, reason: str, hint: str | None = None
) -> ReprobuildError:
    """The E-STORE-DAMAGED of an object; `name` is its digest, or a root's name."""
    shown = name if kind == "root" else f"blake3:{name}"
    return ReprobuildError(
        "E-STORE-DAMAGED",
        f"the {kind} {shown} is damaged: {reason} ({path})",
        hint=hint,
        object=f"{kind} {name}",
        path=str(path),
        reason=reason,
    )
