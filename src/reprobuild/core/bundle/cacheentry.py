"""A binary cache's word on one recipe: what it came out as, and where that lies.

    {"bundle": {"name", "sha256", "size"}, "format": 0, "record": {…}, "signatures": […]}

What is signed is the document without `signatures`, as `reprobuild/cache-entry/v0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reprobuild.core.bundle.signing import (
    ENTRY,
    Signature,
    Signer,
    Trust,
    message,
    parse_signatures,
    trusted_by,
)
from reprobuild.core.digest import Digest, Sha256, document_digest
from reprobuild.core.encoding import Value, decode, encode
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError

DOMAIN = "reprobuild/cache-entry/v0"
MAX_SIZE = 2**20


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A record, and the bundle that holds its trees: file name, SHA-256, size in bytes."""

    record: Record
    name: str
    sha256: Sha256
    size: int
    signatures: tuple[Signature, ...] = ()

    def _body(self) -> dict[str, Value]:
        return {
            "bundle": {"name": self.name, "sha256": self.sha256.hex, "size": self.size},
            "format": 0,
            "record": decode(self.record.encode()),
        }

    @property
    def digest(self) -> Digest:
        """What is signed."""
        return document_digest(DOMAIN, self._body())

    def signed(self, signer: Signer) -> CacheEntry:
        """With the signer's signature."""
        value = signer.sign(message(ENTRY, self.digest))
        return replace(self, signatures=(Signature(signer.key, value),))

    def trusted(self, trust: Trust) -> bool:
        """Whether a trusted key signed it."""
        return trusted_by(trust, self.signatures, ENTRY, self.digest) is not None

    def says(self, record: Record, key: bytes) -> bool:
        """Whether it gives a record's recipe the same trees, at no lower grade, signed by `key`."""
        return (
            self.record.drv == record.drv
            and self.record.outputs == record.outputs
            and self.record.isolation.satisfies(record.isolation)
            and any(signature.key == key for signature in self.signatures)
        )

    def encode(self) -> bytes:
        """The file."""
        return encode({**self._body(), "signatures": [s.document() for s in self.signatures]})


def parse_entry(data: bytes) -> CacheEntry:
    """From the file's bytes; raises E-BUNDLE."""
    try:
        document = decode(data)
        assert isinstance(document, Mapping)
        bundle = document["bundle"]
        assert isinstance(bundle, Mapping)
        name, size = bundle["name"], bundle["size"]
        assert isinstance(name, str)
        assert type(size) is int
        Digest.parse(name)
        assert document["format"] == 0
        return CacheEntry(
            Record.decode(encode(document["record"])),
            name,
            Sha256.parse(str(bundle["sha256"])),
            size,
            parse_signatures(document["signatures"]),
        )
    except (AssertionError, KeyError, TypeError, ReprobuildError) as error:
        raise ReprobuildError("E-BUNDLE", f"a binary cache's entry is off: {error}") from error


def entry_path(drv: Digest) -> str:
    """Where a cache has its word on a recipe."""
    return f"drvs/{drv.hex[:2]}/{drv.hex}.json"


def bundle_path(name: str) -> str:
    """Where a cache has a bundle."""
    return f"bundles/{name[:2]}/{name}"
