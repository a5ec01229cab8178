"""File names of roots."""

from __future__ import annotations

import os
import re

from reprobuild.adapters.store import paths
from reprobuild.errors import ReprobuildError


def file_name(name: str) -> str:
    """A root's file name: bytes outside a small alphabet, and a leading dot, as %XX."""
    text = paths.file_name(name.encode("utf-8", "surrogateescape"))
    if not text or len(text) > 255:
        raise ReprobuildError("E-NAME", f"{name[:80]!r} cannot name a root", got=name[:80])
    return text


def root_name(text: str) -> str:
    """The name whose file name is `text`."""
    raw = re.sub(rb"%([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), os.fsencode(text))
    return raw.decode("utf-8", "surrogateescape")
