"""Public keys, and how they are called."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


def key_id(key: bytes) -> str:
    """How a public key (32 bytes) is called: its SHA-256, in hex digits."""
    return hashlib.sha256(key).hexdigest()


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key: 32 bytes, under a name of the user's; `own` when the private key is here."""

    name: str
    key: bytes
    own: bool
    revoked: str = ""

    @property
    def id(self) -> str:
        """How it is called everywhere."""
        return key_id(self.key)
