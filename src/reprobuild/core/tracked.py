"""Tracked files of a source tree: which installed file is which, and the git tree they make up.

The list that lies inside an image has one line a file, `MODE OID PATH` (octal mode, object name in
hex digits, percent-encoded path), sorted by path. It proves itself: the git trees that follow from
it end in the object name that the labels state.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from reprobuild.core.filelist import quote
from reprobuild.errors import ReprobuildError

LAYOUTS = (b"src", b"python", b"lib")
"""Leading directories of source trees that are not part of where files are installed."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """One file of a git tree. `mode` is 0o100644, 0o100755 or 0o120000 (a link)."""

    mode: int
    oid: str
    path: bytes

    def line(self) -> bytes:
        """Its line of the list."""
        return f"{self.mode:06o} {self.oid} {quote(self.path)}\n".encode("ascii")


def parse(data: bytes) -> Iterator[Tracked]:
    """The files of a list; raises E-IMAGE-VERIFY for a line that is none."""
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            mode, oid, path = line.decode("ascii").split(" ")
            bytes.fromhex(oid)
            yield Tracked(int(mode, 8), oid, unquote_to_bytes(path))
        except ValueError as error:
            raise ReprobuildError(
                "E-IMAGE-VERIFY", f"line {number} of a list of tracked files is off"
            ) from error


def blob_oid(size: int, pieces: Iterable[bytes], *, sha256: bool = False) -> str:
    """The git object name of a blob of `size` bytes."""
    hasher = hashlib.sha256() if sha256 else hashlib.sha1(usedforsecurity=False)
    hasher.update(b"blob %d\0" % size)
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def tree_oid(files: Iterable[Tracked], *, sha256: bool = False) -> str:
    """The git object name of the tree that holds exactly `files`."""
    root: dict[bytes, object] = {}
    for file in files:
        here = root
        *parents, name = file.path.split(b"/")
        for part in parents:
            below = here.setdefault(part, {})
            if not isinstance(below, dict):
                raise ReprobuildError("E-IMAGE-VERIFY", f"{file.path!r} lies below a file")
            here = below
        here[name] = file
    return _tree(root, sha256)


def _tree(node: Mapping[bytes, object], sha256: bool) -> str:
    rows: list[tuple[bytes, bytes]] = []
    for name, below in node.items():
        if isinstance(below, Tracked):
            rows.append((name, b"%o %s\0" % (below.mode, name) + bytes.fromhex(below.oid)))
        else:
            assert isinstance(below, dict)
            oid = bytes.fromhex(_tree(below, sha256))
            rows.append((name + b"/", b"40000 %s\0" % name + oid))
    body = b"".join(row for _, row in sorted(rows))
    hasher = hashlib.sha256() if sha256 else hashlib.sha1(usedforsecurity=False)
    hasher.update(b"tree %d\0" % len(body) + body)
    return hasher.hexdigest()


def installed_as(path: bytes) -> bytes:
    """The end of the path at which a tracked file is installed; empty where nothing can be said.

    One name alone (`setup.py`, `README.md`) is too little to tell files by.
    """
    parts = path.split(b"/")
    if parts[0] in LAYOUTS:
        parts = parts[1:]
    return b"/".join(parts) if len(parts) > 1 else b""


@dataclass(slots=True)
class Correspondence:
    """Finds the tracked files that an installed file may be."""

    _by_end: dict[bytes, list[tuple[bytes, bytes]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, path: bytes) -> None:
        """A tracked file."""
        end = installed_as(path)
        if end:
            self._by_end[_key(end)].append((end, path))

    def of(self, installed: bytes) -> list[bytes]:
        """The tracked paths that agree longest with an installed path."""
        fitting = [
            (len(end), path)
            for end, path in self._by_end.get(_key(installed), ())
            if installed == end or installed.endswith(b"/" + end)
        ]
        longest = max((length for length, _ in fitting), default=0)
        return [path for length, path in fitting if length == longest]


def _key(path: bytes) -> bytes:
    return b"/".join(path.rsplit(b"/", 2)[-2:])
