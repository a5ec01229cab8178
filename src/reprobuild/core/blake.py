"""BLAKE3 in hex digits: what `digest.py` makes digests of, for those who need no more than text.

It imports nothing but the library: a run with nothing to do asks for a few digests and should not
pay for what the types are made of.
"""

from __future__ import annotations

from blake3 import blake3


def blake3_hex(data: bytes) -> str:
    """The plain digest of `data`, 64 hex digits (what b3sum prints)."""
    return blake3(data).hexdigest()


def tagged_hex(domain: str, payload: bytes) -> str:
    """The digest of `payload` under a domain tag: over the tag, one NUL byte and the payload."""
    return blake3(domain.encode() + b"\0" + payload).hexdigest()
