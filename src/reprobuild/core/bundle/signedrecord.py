"""A record that somebody vouches for, as caches hand it out.

What is signed is the document without `signatures`, under a domain of the kind's own: nothing that
was signed as one kind is taken for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from reprobuild.core.bundle.signing import (
    Signature,
    Signer,
    Trust,
    message,
    parse_signatures,
    trusted_by,
)
from reprobuild.core.digest import Digest, document_digest
from reprobuild.core.encoding import Value, decode, encode
from reprobuild.core.record import Record

MAX_SIZE = 2**20
"""Bytes that an entry may have."""


@dataclass(frozen=True, slots=True)
class SignedRecord:
    """A record and its signatures; what else a kind says is in `more`."""

    record: Record
    signatures: tuple[Signature, ...] = field(default=(), kw_only=True)

    DOMAIN: ClassVar[str]
    SIGNED: ClassVar[str]

    def more(self) -> dict[str, Value]:
        """What the document holds beside the record."""
        return {}

    def _body(self) -> dict[str, Value]:
        return {"format": 0, "record": decode(self.record.encode()), **self.more()}

    @property
    def digest(self) -> Digest:
        """What is signed."""
        return document_digest(self.DOMAIN, self._body())

    def signed(self, signer: Signer) -> Self:
        """With the signer's signature."""
        value = signer.sign(message(self.SIGNED, self.digest))
        return replace(self, signatures=(Signature(signer.key, value),))

    def trusted(self, trust: Trust) -> bool:
        """Whether a key that is trusted signed it."""
        return trusted_by(trust, self.signatures, self.SIGNED, self.digest) is not None

    def encode(self) -> bytes:
        """The bytes that are stored."""
        return encode({**self._body(), "signatures": [s.document() for s in self.signatures]})


def parse_signed(data: bytes) -> tuple[Mapping[str, Value], Record, tuple[Signature, ...]]:
    """The document of a kind, its record and signatures.

    Raises AssertionError, KeyError, TypeError or ReprobuildError for what is none.
    """
    document = decode(data)
    assert isinstance(document, Mapping)
    assert document["format"] == 0
    record = Record.decode(encode(document["record"]))
    return document, record, parse_signatures(document["signatures"])
