"""A certificate that a bundle was rebuilt from itself alone: what it says, and when it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from reprobuild.core.bundle.signing import PROOF, Signature, Trust, parse_signatures, trusted_by
from reprobuild.core.digest import Digest, document_digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError

DOMAIN = "reprobuild/proof/v0"


@dataclass(frozen=True, slots=True)
class Proof:
    """A certificate (a document) and the signatures under it."""

    certificate: Mapping[str, Value]
    signatures: tuple[Signature, ...] = ()

    @property
    def digest(self) -> Digest:
        """What is signed."""
        return document_digest(DOMAIN, self.certificate)

    def document(self) -> dict[str, Value]:
        """As it stands in a bundle."""
        return {
            "certificate": self.certificate,
            "signatures": [s.document() for s in self.signatures],
        }


def parse_proofs(value: Value) -> tuple[Proof, ...]:
    """From a bundle's list of proofs; raises E-BUNDLE."""
    if not isinstance(value, list):
        raise ReprobuildError("E-BUNDLE", "the bundle's proofs are no list")
    found = []
    for row in value:
        if not isinstance(row, Mapping) or set(row) != {"certificate", "signatures"}:
            raise ReprobuildError("E-BUNDLE", "a proof is a certificate and signatures")
        certificate = row["certificate"]
        if not isinstance(certificate, Mapping):
            raise ReprobuildError("E-BUNDLE", "a certificate is an object")
        found.append(Proof(certificate, parse_signatures(row["signatures"])))
    return tuple(found)


def check_proof(proofs: Sequence[Proof], bundle: Digest, trust: Trust) -> Proof:
    """The proof that counts for this bundle.

    It is signed by a trusted key, speaks of this very bundle, compared everything, and found
    nothing different. Raises E-PROOF saying what is wrong with each.
    """
    reasons = []
    for proof in proofs:
        reason = _reason(proof, bundle, trust)
        if not reason:
            return proof
        reasons.append(reason)
    raise ReprobuildError(
        "E-PROOF", f"no proof for the bundle counts: {'; '.join(reasons) or 'it carries none'}"
    )


def _reason(proof: Proof, bundle: Digest, trust: Trust) -> str:
    certificate = proof.certificate
    if trusted_by(trust, proof.signatures, PROOF, proof.digest) is None:
        return "not signed by a trusted key"
    if certificate.get("bundle") != bundle.hex:
        return "it is another bundle's"
    compared = certificate.get("compared")
    if not isinstance(compared, Mapping):
        return "it compared nothing"
    if compared.get("different"):
        return f"{len(cast('Mapping[str, Value]', compared['different']))} outputs differed"
    if compared.get("unknown") or not compared.get("equal"):
        return "not every output was compared"
    return ""
