"""Keys that vouch for their successors, so that whoever trusts the old one can come to the new one.

    {"format": 0, "rotated": [{"from", "to", "signature"}]}

`from` and `to` are public keys (32 bytes), `signature` (64 bytes) is by `from` over
`reprobuild/key-rotation/v0` NUL `to`; all in hex digits. The document is public: it travels beside
attestations, and as a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from reprobuild.core.encoding import Value, encode
from reprobuild.core.publickey import key_id
from reprobuild.errors import ReprobuildError

DOMAIN = b"reprobuild/key-rotation/v0\0"
MOST = 1000

Check = Callable[[bytes, bytes, bytes], bool]
"""(public key, message, signature) → whether the key made it."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """One key's word for the next; not checked yet."""

    old: bytes
    new: bytes
    signature: bytes

    def holds(self, check: Check) -> bool:
        """Whether the old key said so."""
        return check(self.old, DOMAIN + self.new, self.signature)


def render(rotations: Iterable[Rotation]) -> bytes:
    """The document, and a final newline."""
    rows: list[Value] = [
        {"from": r.old.hex(), "signature": r.signature.hex(), "to": r.new.hex()} for r in rotations
    ]
    return encode({"format": 0, "rotated": rows}) + b"\n"


def parse(data: bytes) -> list[Rotation]:
    """Reads a document; raises E-SIGNATURE for what is none."""
    try:
        document = json.loads(data)
        if document["format"] != 0 or len(document["rotated"]) > MOST:
            raise ValueError("another format, or too long")
        found = [
            Rotation(*(bytes.fromhex(row[key]) for key in ("from", "to", "signature")))
            for row in document["rotated"]
        ]
        if any((len(r.old), len(r.new), len(r.signature)) != (32, 32, 64) for r in found):
            raise ValueError("keys have 32 bytes, signatures 64")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReprobuildError(
            "E-SIGNATURE", f"this is no document of rotated keys: {error}"
        ) from error
    return found


def leading_to(rotations: Sequence[Rotation], key: bytes) -> list[Rotation]:
    """The chain of rotations that ends at `key`, the earliest first."""
    by_new = {r.new: r for r in rotations}
    chain: list[Rotation] = []
    while (last := by_new.pop(key, None)) is not None:
        chain.insert(0, last)
        key = last.old
    return chain


def vouched(
    rotations: Sequence[Rotation],
    believed: Iterable[bytes],
    check: Check,
    revoked: Collection[str] = (),
) -> dict[bytes, bytes]:
    """The keys that believed ones vouch for, each with the believed key at the beginning of its
    chain. A key whose id is `revoked` vouches for nothing, and is vouched for by nobody."""
    roots = {key: key for key in believed if key_id(key) not in revoked}
    found: dict[bytes, bytes] = {}
    waiting = list(rotations)
    grown = True
    while grown:
        grown = False
        for one in waiting:
            fresh = one.new not in roots and key_id(one.new) not in revoked
            if one.old in roots and fresh and one.holds(check):
                found[one.new] = roots[one.new] = roots[one.old]
                grown = True
    return found
