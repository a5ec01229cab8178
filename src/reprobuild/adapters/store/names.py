"""File names of roots."""

from __future__ import annotations

import re

from reprobuild.errors import ReprobuildError

_PLAIN = re.compile(rb"[A-Za-z0-9_+@,=.-]")


def file_name(name: str) -> str:
    """A root's file name: bytes outside a small alphabet, and a leading dot, as %XX."""
    raw = name.encode("utf-8", "surrogateescape")
    parts = [
        chr(byte) if _PLAIN.match(raw, i) and (byte != 46 or i) else f"%{byte:02X}"
        for i, byte in enumerate(raw)
    ]
    text = "".join(parts)
    if not text or len(text) > 255:
        raise ReprobuildError("E-NAME", f"{name[:80]!r} cannot name a root", got=name[:80])
    return text


def root_name(text: str) -> str:
    """The name whose file name is `text`."""
    raw = re.sub(rb"%([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), text.encode())
    return raw.decode("utf-8", "surrogateescape")
