"""Signatures: over which bytes, and how they are written down. The keys are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
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
class Stamp:
    """Which store made something (16 bytes), and a number above all before from there."""

    store: bytes
    serial: int

    @property
    def raw(self) -> bytes:
        """24 bytes, which are signed behind the digest."""
        return self.store + self.serial.to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class Signature:
    """A public key (32 bytes) and what it made (64 bytes), over a digest and perhaps a stamp."""

    key: bytes
    value: bytes
    stamp: Stamp | None = None

    def document(self) -> dict[str, Value]:
        """As it is written."""
        row: dict[str, Value] = {"key": self.key.hex(), "signature": self.value.hex()}
        if self.stamp is not None:
            row |= {"serial": self.stamp.serial, "store": self.stamp.store.hex()}
        return row

    def covers(self, domain: str, digest: Digest) -> bytes:
        """What was signed, if it is a signature over this."""
        return message(domain, digest) + (self.stamp.raw if self.stamp is not None else b"")


def sign(
    signer: Signer | None, domain: str, digest: Digest, stamp: Stamp | None = None
) -> list[Value]:
    """The list of signatures with one entry, or none."""
    if signer is None:
        return []
    unsigned = Signature(signer.key, b"", stamp)
    return [replace(unsigned, value=signer.sign(unsigned.covers(domain, digest))).document()]


def parse_signatures(value: Value) -> tuple[Signature, ...]:
    """From the list of signatures; raises E-BUNDLE."""
    try:
        if not isinstance(value, list):
            raise TypeError("no list")
        return tuple(_signature(row) for row in value)
    except (KeyError, TypeError, ValueError) as error:
        raise ReprobuildError("E-BUNDLE", f"the list of signatures is off: {error}") from error


def _signature(row: Value) -> Signature:
    if not isinstance(row, Mapping) or not {"key", "signature"} <= set(row):
        raise TypeError("a signature has a key and a signature")
    key, value = bytes.fromhex(str(row["key"])), bytes.fromhex(str(row["signature"]))
    stamp = None
    if "serial" in row:
        store, serial = bytes.fromhex(str(row["store"])), row["serial"]
        if type(serial) is not int or not 0 <= serial < 2**63 or len(store) != 16:
            raise ValueError("a stamp has a number and the 16 bytes of a store")
        stamp = Stamp(store, serial)
    found = Signature(key, value, stamp)
    if len(key) != 32 or len(value) != 64 or row != found.document():
        raise ValueError("a key has 32 bytes, a signature 64")
    return found


def trusted_by(
    trust: Trust, signatures: Iterable[Signature], domain: str, digest: Digest
) -> Signature | None:
    """The first signature that counts here."""
    return next(
        (s for s in signatures if trust.verify(s.key, s.covers(domain, digest), s.value)), None
    )


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
