"""Digests: parsed or computed, never bare strings. Store, git and OCI each have their own type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, Self

from blake3 import blake3

from reprobuild.core.blake import blake3_hex, tagged_hex
from reprobuild.core.encoding import Value, encode
from reprobuild.errors import ReprobuildError

_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
_GIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


class Hasher(Protocol):
    """What hashlib and blake3 objects have in common."""

    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A BLAKE3 digest of 32 bytes: names blobs, trees, derivations, actions and records."""

    hex: str

    PREFIX = "blake3:"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `blake3:<64 hex>` or the bare 64 hex digits; raises E-DIGEST."""
        bare = text.removeprefix(cls.PREFIX)
        if not _HEX64.match(bare):
            raise ReprobuildError("E-DIGEST", f"{text[:80]!r} is no BLAKE3 digest", got=text[:80])
        return cls(bare)

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The plain digest of `data`: what names a blob (and what b3sum prints)."""
        return cls(blake3_hex(data))

    @classmethod
    def from_raw(cls, raw: bytes) -> Self:
        """From the 32 bytes themselves; raises E-DIGEST when there are not 32."""
        if len(raw) != 32:
            raise ReprobuildError("E-DIGEST", f"a BLAKE3 digest has 32 bytes, not {len(raw)}")
        return cls(raw.hex())

    @property
    def raw(self) -> bytes:
        """The 32 bytes."""
        return bytes.fromhex(self.hex)

    @property
    def short(self) -> str:
        """The first 12 digits, for people."""
        return self.hex[:12]

    def __str__(self) -> str:
        return self.PREFIX + self.hex


@dataclass(frozen=True, slots=True, order=True)
class Sha256:
    """A SHA-256 digest: OCI blobs and manifests, wheels, Debian packages, downloads."""

    hex: str

    PREFIX = "sha256:"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `sha256:<64 hex>` or the bare 64 hex digits; raises E-DIGEST."""
        bare = text.removeprefix(cls.PREFIX)
        if not _HEX64.match(bare):
            raise ReprobuildError("E-DIGEST", f"{text[:80]!r} is no SHA-256 digest", got=text[:80])
        return cls(bare)

    def __str__(self) -> str:
        return self.PREFIX + self.hex


@dataclass(frozen=True, slots=True, order=True)
class GitOid:
    """A git object name: 40 hex digits (SHA-1 repositories) or 64 (SHA-256 repositories)."""

    hex: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the full hex name; abbreviations and anything else raise E-DIGEST."""
        if not _GIT.match(text):
            raise ReprobuildError(
                "E-DIGEST", f"{text[:80]!r} is no full git object name", got=text[:80]
            )
        return cls(text)

    def __str__(self) -> str:
        return self.hex


def tagged(domain: str, payload: bytes) -> Digest:
    """BLAKE3 over `domain`, one NUL byte and `payload`: every digest that is not a blob's.

    `domain` is text like `reprobuild/derivation/v0`; the version moves with the format.
    """
    return Digest(tagged_hex(domain, payload))


def document_digest(domain: str, value: Value) -> Digest:
    """The digest of a document: its canonical encoding under a domain tag."""
    return tagged(domain, encode(value))


def blob_hasher() -> Hasher:
    """A fresh streaming hasher whose hex digest names a blob."""
    return blake3()
