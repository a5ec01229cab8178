"""A binary cache's word on one recipe: what it came out as, and where that lies.

    {"bundle": {"name", "sha256", "size"}, "format": 0, "record": {…}, "signatures": […]}

What is signed is the document without `signatures`, as `reprobuild/cache-entry/v0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.core.bundle.signedrecord import SignedRecord, parse_signed
from reprobuild.core.bundle.signing import ENTRY
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class CacheEntry(SignedRecord):
    """A record, and the bundle that holds its trees: file name, SHA-256, size in bytes."""

    name: str
    sha256: Sha256
    size: int

    DOMAIN = "reprobuild/cache-entry/v0"
    SIGNED = ENTRY

    def more(self) -> dict[str, Value]:
        """The bundle."""
        return {"bundle": {"name": self.name, "sha256": self.sha256.hex, "size": self.size}}

    def says(self, record: Record, key: bytes) -> bool:
        """Whether it gives a record's recipe the same trees, at no lower grade, signed by `key`."""
        return (
            self.record.drv == record.drv
            and self.record.outputs == record.outputs
            and self.record.isolation.satisfies(record.isolation)
            and any(signature.key == key for signature in self.signatures)
        )


def parse_entry(data: bytes) -> CacheEntry:
    """From the file's bytes; raises E-BUNDLE."""
    try:
        document, record, signatures = parse_signed(data)
        bundle = document["bundle"]
        assert isinstance(bundle, Mapping)
        name, size = bundle["name"], bundle["size"]
        assert isinstance(name, str)
        assert type(size) is int
        Digest.parse(name)
        sha256 = Sha256.parse(str(bundle["sha256"]))
    except (AssertionError, KeyError, TypeError, ReprobuildError) as error:
        raise ReprobuildError("E-BUNDLE", f"a binary cache's entry is off: {error}") from error
    return CacheEntry(record, name, sha256, size, signatures=signatures)


def entry_path(drv: Digest) -> str:
    """Where a cache has its word on a recipe."""
    return f"drvs/{drv.hex[:2]}/{drv.hex}.json"


def bundle_path(name: str) -> str:
    """Where a cache has a bundle."""
    return f"bundles/{name[:2]}/{name}"
