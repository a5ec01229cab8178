"""Attestations of an image: made and signed, and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from reprobuild.core.attachment import DSSE, EVIDENCE, Attachment
from reprobuild.core.bill import Bill, bill
from reprobuild.core.dsse import IN_TOTO, Check, open_envelope, seal
from reprobuild.core.evidence import parse_evidence
from reprobuild.core.image import ImageFacts
from reprobuild.core.provenance import GATES, SLSA, Claim, Observed, claim, provenance
from reprobuild.errors import ReprobuildError

PREDICATE = "in-toto.io/predicate-type"
"""The annotation by which cosign and others find an attestation's kind."""


class Signer(Protocol):
    """Holds a private ed25519 key."""

    @property
    def key(self) -> bytes:
        """The 32 bytes of the public key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature."""
        ...


def make(
    facts: ImageFacts,
    statement: Mapping[str, Any],
    observed: Observed,
    signer: Signer,
    key_id: str,
    sboms: Callable[[Bill], Sequence[Attachment]],
) -> list[Attachment]:
    """Signed provenance, and bills of materials, in a fixed order."""
    payload = provenance(facts, statement, observed)
    sealed = seal(IN_TOTO, payload, key_id, signer.sign)
    attestation = Attachment("provenance.dsse.json", DSSE, sealed, {PREDICATE: SLSA})
    return [attestation, *sboms(bill(facts, statement))]


def check(
    attachments: Sequence[Attachment],
    facts: ImageFacts,
    keys: Sequence[tuple[str, bytes]],
    signed_by: Check,
    *,
    provenance_needed: bool = True,
) -> list[Claim]:
    """What attestations and gates' evidence of this image say that one of `keys` (id, 32 bytes)
    signed.

    Those of unknown keys count for nothing. Raises E-SIGNATURE when one that is signed by a known
    key is of another image, and when no provenance is left that is needed.
    """
    found: list[Claim] = []
    unknown = 0
    for attachment in attachments:
        if attachment.media_type == EVIDENCE:
            found += _evidence(attachment, facts, keys, signed_by)
        if attachment.media_type != DSSE:
            continue
        envelope = open_envelope(attachment.data)
        signer = envelope.signer(keys, signed_by)
        if signer:
            found.append(claim(envelope, facts, signer))
        else:
            unknown += 1
    if provenance_needed and not any(c.predicate_type == SLSA for c in found):
        raise ReprobuildError(
            "E-SIGNATURE",
            f"of {unknown + len(found)} attestations, none is a provenance that a trusted key "
            "signed",
            keys=[name for name, _ in keys],
        )
    return found


def _evidence(
    attachment: Attachment,
    facts: ImageFacts,
    keys: Sequence[tuple[str, bytes]],
    signed_by: Check,
) -> list[Claim]:
    """What `qualify` wrote of a gate, where a known key signed it and it is of this image."""
    evidence = parse_evidence(attachment.data, attachment.name)
    for name, key in keys:
        if evidence.key == key.hex() and signed_by(
            key, evidence.message(), bytes.fromhex(evidence.signature)
        ):
            if evidence.image != str(facts.config_digest):
                break
            row = {"name": evidence.gate, "passed": evidence.passed}
            return [Claim(GATES, name, {"gates": [row]})]
    return []
