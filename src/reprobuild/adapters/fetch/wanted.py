"""A file by content, the places that may have it, and the errors when none gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprobuild.adapters.fetch.http import TransferError
from reprobuild.adapters.fetch.redact import redact
from reprobuild.core.digest import Sha256
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file may be had; `authorization` is a header's value and never shown."""

    url: str
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file by content; `size` in bytes, -1 where it is not known; `name` is for people."""

    name: str
    sha256: Sha256
    size: int = -1


def mismatch(wanted: Wanted, digest: str, size: int, url: str) -> ReprobuildError:
    """E-FETCH-MISMATCH: `digest` (`sha256:…`) and `size` came, where each is known ("", -1)."""
    if not digest:
        came = f"{size} bytes or more"
    else:
        came = digest + (f" ({size} bytes)" if size >= 0 else "")
    pinned = f"{wanted.sha256}" + (f" ({wanted.size} bytes)" if wanted.size >= 0 else "")
    return ReprobuildError(
        "E-FETCH-MISMATCH",
        f"{wanted.name}: {redact(url)} gave {came}, but {pinned} is pinned",
        name=wanted.name,
        origin=redact(url),
        expected=str(wanted.sha256),
        got=digest or None,
        expected_size=wanted.size if wanted.size >= 0 else None,
        got_size=size if size >= 0 else None,
    )


def unreachable(name: str, failures: Sequence[tuple[Place, TransferError]]) -> ReprobuildError:
    """E-OFFLINE where the network was missing, else E-FETCH with what each place said.

    The fact `gone` is there when every place answered and none has it.
    """
    tried = [f"{redact(place.url)}: {error.reason}" for place, error in failures]
    if any(error.offline for _, error in failures):
        return ReprobuildError(
            "E-OFFLINE",
            f"{name} is not here, and the network is off",
            name=name,
            tried=tried,
        )
    if not tried:
        return ReprobuildError(
            "E-FETCH", f"{name}: no place is configured to fetch it from", name=name
        )
    return ReprobuildError(
        "E-FETCH",
        f"{name} could not be fetched: " + "; ".join(tried),
        name=name,
        tried=tried,
        gone=all(error.missing for _, error in failures) or None,
    )
