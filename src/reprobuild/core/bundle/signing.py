"""Signatures: over which bytes, and how they are written down. The keys are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError

BUNDLE = "reprobuild/signed-bundle/v0"
INVENTORY = "reprobuild/signed-inventory/v0"
PROOF = "reprobuild/signed-proof/v0"
ENTRY = "reprobuild/signed-cache-entry/v0"


class Signer(Protocol):
    """Holds a private ed25519 key."""

    @property
    def key(self) -> bytes:
        """The 32 bytes of the public key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature (RFC 8032; the same for the same message)."""
        ...


class Trust(Protocol):
    """The public keys that are believed here."""

    def verify(self, key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether `key` is trusted and not revoked, and made this signature."""
        ...


def message(domain: str, digest: Digest) -> bytes:
    """What is signed: a domain tag, NUL, and the 32 bytes of a digest."""
    return domain.encode() + b"\0" + digest.raw


@dataclass(frozen=True, slots=True)
class Signature:
    """A public key (32 bytes) and what it made (64 bytes)."""

    key: bytes
    value: bytes

    def document(self) -> dict[str, Value]:
        """As it is written."""
        return {"key": self.key.hex(), "signature": self.value.hex()}


def sign(signer: Signer | None, domain: str, digest: Digest) -> list[Value]:
    """The list of signatures with one entry, or none."""
    if signer is None:
        return []
    return [Signature(signer.key, signer.sign(message(domain, digest))).document()]


def parse_signatures(value: Value) -> tuple[Signature, ...]:
    """From the list of signatures; raises E-BUNDLE."""
    try:
        if not isinstance(value, list):
            raise TypeError("no list")
        return tuple(_signature(row) for row in value)
    except (KeyError, TypeError, ValueError) as error:
        raise ReprobuildError("E-BUNDLE", f"the list of signatures is off: {error}") from error


def _signature(row: Value) -> Signature:
    if not isinstance(row, Mapping) or set(row) != {"key", "signature"}:
        raise TypeError("a signature has a key and a signature")
    key, value = bytes.fromhex(str(row["key"])), bytes.fromhex(str(row["signature"]))
    if len(key) != 32 or len(value) != 64 or row != Signature(key, value).document():
        raise ValueError("a key has 32 bytes, a signature 64")
    return Signature(key, value)


def trusted_by(
    trust: Trust, signatures: Iterable[Signature], domain: str, digest: Digest
) -> Signature | None:
    """The first signature that counts here."""
    text = message(domain, digest)
    return next((s for s in signatures if trust.verify(s.key, text, s.value)), None)


@dataclass(frozen=True, slots=True)
class _Also:
    trust: Trust
    keys: Collection[bytes]
    check: Callable[[bytes, bytes, bytes], bool]

    def verify(self, key: bytes, message: bytes, signature: bytes) -> bool:
        if key in self.keys:
            return self.check(key, message, signature)
        return self.trust.verify(key, message, signature)


def believing(
    trust: Trust, keys: Collection[bytes], check: Callable[[bytes, bytes, bytes], bool]
) -> Trust:
    """`trust`, and some more public keys; `check` says whether one made a signature."""
    return _Also(trust, keys, check)


@dataclass(frozen=True, slots=True)
class _Only:
    keys: Collection[bytes]
    check: Callable[[bytes, bytes, bytes], bool]

    def verify(self, key: bytes, message: bytes, signature: bytes) -> bool:
        return key in self.keys and self.check(key, message, signature)


def only(keys: Collection[bytes], check: Callable[[bytes, bytes, bytes], bool]) -> Trust:
    """These public keys and no others; `check` says whether one made a signature."""
    return _Only(frozenset(keys), check)
