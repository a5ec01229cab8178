"""Signed envelopes: DSSE v1 (github.com/secure-systems-lab/dsse, protocol.md and envelope.md)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reprobuild.core.encoding import encode
from reprobuild.errors import ReprobuildError

IN_TOTO = "application/vnd.in-toto+json"

Sign = Callable[[bytes], bytes]
Check = Callable[[bytes, bytes, bytes], bool]
"""(public key, message, signature) → whether the key made it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """An opened envelope, its signatures not checked yet: (key id, signature) each."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @property
    def message(self) -> bytes:
        """What was signed."""
        return pae(self.payload_type, self.payload)

    def signer(self, keys: Sequence[tuple[str, bytes]], check: Check) -> str:
        """The id of the first of `keys` (id and 32 bytes each) that signed it; empty when none did.

        Key ids in the envelope are hints and prove nothing, so every key is tried.
        """
        for name, key in keys:
            if any(check(key, self.message, signature) for _, signature in self.signatures):
                return name
        return ""


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: what a signature is over."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload_type: str, payload: bytes, key_id: str, sign: Sign) -> bytes:
    """The envelope over a payload, with one signature."""
    signature = sign(pae(payload_type, payload))
    return encode(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode()}],
        }
    )


def open_envelope(data: bytes) -> Envelope:
    """Reads an envelope; raises E-SIGNATURE for what is none."""
    try:
        document = json.loads(data)
        return Envelope(
            str(document["payloadType"]),
            _bytes(document["payload"]),
            tuple(
                (str(row.get("keyid", "")), _bytes(row["sig"])) for row in document["signatures"]
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReprobuildError(
            "E-SIGNATURE", f"an attestation is no DSSE envelope: {error}"
        ) from error


def _bytes(text: str) -> bytes:
    """Standard or URL-safe base64, as the specification has it."""
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as error:
        raise ValueError("bad base64") from error
