"""A shared cache's word on one action: the record of who made it, signed.

    {"format": 0, "record": {…}, "signatures": [{"key", "signature"}]}

What is signed is the document without `signatures`, as `reprobuild/remote-entry/v0`. Where the
trees lie is not part of it: whatever comes is named by what it is, and has to be what the record
says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
from reprobuild.core.remote.wire import Blob
from reprobuild.errors import ReprobuildError

DOMAIN = "reprobuild/remote-entry/v0"
SIGNED = "reprobuild/signed-remote-entry/v0"
MAX_SIZE = 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, and who vouches for it."""

    record: Record
    signatures: tuple[Signature, ...] = ()

    def _body(self) -> dict[str, Value]:
        return {"format": 0, "record": decode(self.record.encode())}

    @property
    def digest(self) -> Digest:
        """What is signed."""
        return document_digest(DOMAIN, self._body())

    def signed(self, signer: Signer) -> Entry:
        """With the signer's signature."""
        value = signer.sign(message(SIGNED, self.digest))
        return replace(self, signatures=(Signature(signer.key, value),))

    def trusted(self, trust: Trust) -> bool:
        """Whether a key that is trusted signed it."""
        return trusted_by(trust, self.signatures, SIGNED, self.digest) is not None

    def encode(self) -> bytes:
        """The bytes that are stored."""
        return encode({**self._body(), "signatures": [s.document() for s in self.signatures]})

    @classmethod
    def parse(cls, data: bytes) -> Entry:
        """From the bytes; raises E-BUNDLE."""
        try:
            document = decode(data)
            assert isinstance(document, Mapping)
            assert document["format"] == 0
            return cls(
                Record.decode(encode(document["record"])),
                parse_signatures(document["signatures"]),
            )
        except (AssertionError, KeyError, TypeError, ReprobuildError) as error:
            raise ReprobuildError("E-BUNDLE", f"a shared cache's entry is off: {error}") from error


@dataclass(frozen=True, slots=True)
class Found:
    """An entry, and the wire's name of each output's tree (a Tree message)."""

    entry: Entry
    trees: Mapping[str, Blob] = field(default_factory=dict)
