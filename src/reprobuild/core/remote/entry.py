"""A shared cache's word on one action: the record of who made it, signed.

    {"format": 0, "record": {…}, "signatures": [{"key", "signature"}]}

What is signed is the document without `signatures`, as `reprobuild/remote-entry/v0`. Where the
trees lie is not part of it: whatever comes is named by what it is, and has to be what the record
says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.bundle.signedrecord import SignedRecord, parse_signed
from reprobuild.core.remote.wire import Blob
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class Entry(SignedRecord):
    """A record, and who vouches for it."""

    DOMAIN = "reprobuild/remote-entry/v0"
    SIGNED = "reprobuild/signed-remote-entry/v0"

    @classmethod
    def parse(cls, data: bytes) -> Entry:
        """From the bytes; raises E-BUNDLE."""
        try:
            _, record, signatures = parse_signed(data)
        except (AssertionError, KeyError, TypeError, ReprobuildError) as error:
            raise ReprobuildError("E-BUNDLE", f"a shared cache's entry is off: {error}") from error
        return cls(record, signatures=signatures)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry, and the wire's name of each output's tree (a Tree message)."""

    entry: Entry
    trees: Mapping[str, Blob] = field(default_factory=dict)
