"""Names and places in a store as plain text: the part of `layout.py` that imports nothing."""

from __future__ import annotations

import os

FORMAT = 0
FORMAT_TEXT = "reprobuild store "
PLACEHOLDER = "README.md"
RESERVE = "reserve"
"""Room for collection (reserve.py)."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+@,=.-")


def data_directory(path: str) -> str:
    """Where a store named `path` keeps its data.

    A checkout's store/ holds a committed README.md; git steps over a nested repository only where
    it tracks nothing, so there the data lies one level deeper (unless a store is there already).
    """
    if not os.path.lexists(f"{path}/format") and os.path.exists(f"{path}/{PLACEHOLDER}"):
        return f"{path}/data"
    return path


def format_number(data: bytes) -> int | None:
    """The number that the file `format` names; None where it names none."""
    text = data.decode("utf-8", "replace").removesuffix("\n")
    number = text.removeprefix(FORMAT_TEXT)
    if not text.startswith(FORMAT_TEXT) or not (number.isascii() and number.isdigit()):
        return None
    return int(number)


def sharded(root: str, kind: str, hex_digest: str) -> str:
    """The file of a tree, derivation, blob or memo: `<kind>/ab/<hex>`."""
    return f"{root}/{kind}/{hex_digest[:2]}/{hex_digest}"


def blob(home: str, hex_digest: str, executable: bool) -> str:
    """A blob's file; `home` is the store's blobs/, with the slash."""
    return f"{home}{hex_digest[:2]}/{hex_digest}{'.x' if executable else ''}"


def file_name(raw: bytes) -> str:
    """A root's file name: bytes outside a small alphabet, and a leading dot, as %XX."""
    return "".join(
        chr(byte) if byte in _PLAIN and (byte != 46 or i) else f"%{byte:02X}"
        for i, byte in enumerate(raw)
    )
