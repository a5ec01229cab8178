"""What a lock says of an integration beside its tree, and whether integrating gives it.

None of it decides what is built: it stands in labels and statements, so it must be true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.core.integration.model import Integration, IntegrationSpec

KEY = "promised"
"""Where an origin carries it."""


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """What happened to a head."""

    number: int
    disposition: str
    squashed_in_base: bool


@dataclass(frozen=True, slots=True)
class Promise:
    """The facts, digests as hex digits."""

    patch_sha256: str
    patch_digest: str
    heads: tuple[HeadFacts, ...]

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "patch_sha256": self.patch_sha256,
            "patch_digest": self.patch_digest,
            "heads": [
                {
                    "number": head.number,
                    "disposition": head.disposition,
                    "squashed_in_base": head.squashed_in_base,
                }
                for head in self.heads
            ],
        }

    @classmethod
    def of(cls, origin: Mapping[str, Value]) -> Promise | None:
        """The promise in an origin document; None where it carries none. Raises E-INTEGRATION."""
        value = origin.get(KEY)
        if value is None:
            return None
        try:
            document: Any = value  # what is not as it should be fails below
            return cls(
                str(document["patch_sha256"]),
                str(document["patch_digest"]),
                tuple(
                    HeadFacts(
                        int(row["number"]), str(row["disposition"]), row["squashed_in_base"] is True
                    )
                    for row in document["heads"]
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ReprobuildError(
                "E-INTEGRATION", f"not what a lock promises: {error!s:.200}"
            ) from error

    def differences(self, spec: IntegrationSpec, done: Integration) -> list[str]:
        """How an integration differs from what is promised; empty where it does not.

        `patch_sha256` is compared only where the integration has it (`digest_patch`).
        """
        found = []
        if self.patch_digest != done.patch_digest.hex:
            found.append(_said("patch-digest", self.patch_digest, done.patch_digest.hex))
        got = [HeadFacts(h.number, h.disposition.value, h.squashed_in_base) for h in done.heads]
        if [head.number for head in got] != [head.number for head in self.heads]:
            found.append(_said("heads", _numbers(self.heads), _numbers(got)))
        else:
            for said, came in zip(self.heads, got, strict=True):
                if said != came:
                    found.append(_said(f"PR #{said.number}", _words(said), _words(came)))
        used = [r for head in done.heads for r in head.resolved]
        if used != list(spec.resolutions):
            paths = [[r.path for r in rows] for rows in (spec.resolutions, used)]
            found.append(_said("resolutions", *(", ".join(p) or "none" for p in paths)))
        return found

    def patch_difference(self, sha256: str) -> str:
        """How the digest of the published patch differs; "" where it does not."""
        same = sha256 == self.patch_sha256
        return "" if same else _said("patch-sha256", self.patch_sha256, sha256)


def _said(what: str, promised: str, got: str) -> str:
    return f"{what}: the lock says {promised}, integrating gives {got}"


def _numbers(heads: tuple[HeadFacts, ...] | list[HeadFacts]) -> str:
    return ", ".join(f"#{head.number}" for head in heads) or "none"


def _words(head: HeadFacts) -> str:
    return head.disposition + (" (squashed in base)" if head.squashed_in_base else "")
