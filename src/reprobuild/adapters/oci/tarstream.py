"""A store tree as the bytes of a layer's tar, streamed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import BinaryIO

from reprobuild.adapters.oci.streams import Memory, Piece
from reprobuild.core import filelist
from reprobuild.core.digest import Digest
from reprobuild.core.filelist import after, quote
from reprobuild.core.imagetar import (
    BLOCK,
    DIRECTORY,
    END,
    REGULAR,
    SYMLINK,
    Attributes,
    Headers,
    header,
)
from reprobuild.core.tree import Directory, Entry, File
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

PIECE = 2**20
"""Bytes of each piece but the last: what follows (hashing, compressing) is paid by the piece."""

SMALL = 2**16
"""Files up to this size are read at once; larger ones straight into the piece they belong to."""

_PADS = tuple(bytes(-size % BLOCK) for size in range(BLOCK))
"""What fills up a block, by the bytes that its last one has."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Attributes that are not the default: by path, for entries that exist.

    `mtime` (seconds since the epoch) is everything else's.
    """

    mtime: int
    paths: Mapping[bytes, Attributes] = field(default_factory=dict)


_MODES = {
    filelist.FILE: 0o644,
    filelist.EXECUTABLE: 0o755,
    filelist.DIRECTORY: 0o755,
    filelist.LINK: 0o777,
}


class _Style:
    """What the headers and lines of entries of one kind share that have the same attributes."""

    __slots__ = ("attributes", "headers", "lead")

    def __init__(self, kind: str, attributes: Attributes) -> None:
        self.attributes = attributes
        self.headers = Headers(DIRECTORY if kind == filelist.DIRECTORY else REGULAR, attributes)
        self.lead = filelist.lead(kind, attributes.mode, attributes.uid, attributes.gid)


class _Cutter:
    """Puts what is appended to `parts` into pieces of one size.

    Nothing is written to that a piece shows: others may still be at work on the earlier ones.
    """

    __slots__ = ("_at", "_full", "_memory", "_piece", "parts")

    def __init__(self, memory: Memory) -> None:
        self.parts: list[bytes] = []
        """What is in no piece yet; who appends calls `settle` now and then."""
        self._memory = memory
        self._piece = memory.take()
        self._at = 0
        self._full: list[Piece] = []

    def settle(self) -> int:
        """Puts all parts into their places; the number of bytes in the piece that is not full."""
        data = memoryview(b"".join(self.parts))
        self.parts.clear()
        while data:
            put = min(len(data), PIECE - self._at)
            self._piece[self._at : self._at + put] = data[:put]
            self._advance(put)
            data = data[put:]
        return self._at

    def _advance(self, count: int) -> None:
        self._at += count
        if self._at == PIECE:
            self._full.append(self._piece)
            self._piece, self._at = self._memory.take(), 0

    def fill(self, size: int, read_into: Callable[[memoryview], int]) -> Iterator[None]:
        """Appends `size` bytes, which `read_into` writes to where they belong, the number of them
        at a time that it returns; after each full piece, others have a turn."""
        self.settle()
        while size:
            end = min(PIECE, self._at + size)
            count = read_into(self._piece[self._at : end])
            size -= count
            self._advance(count)
            if self._full:
                yield

    def take(self) -> list[Piece]:
        """The complete pieces, which are then forgotten."""
        full, self._full = self._full, []
        return full

    def last(self) -> memoryview:
        """What is left when all are taken, shorter than a piece."""
        return self._piece[: self._at]


def tar_pieces(
    content: ContentStore,
    tree: Digest,
    overrides: Overrides,
    lines: list[str] | None = None,
    memory: Memory | None = None,
) -> Iterator[Piece]:
    """The tar of `tree`: each directory before what it holds, names in order of their bytes.

    Pieces have PIECE bytes, the last one fewer; they lie in `memory` (of that size), to which they
    may be given back. `lines`, when given, gets the line of every entry (core/filelist.py), its
    content's SHA-256 included. Raises as reading the store does, and E-STORE-DAMAGED for a file of
    another size than the tree says.
    """
    cutter = _Cutter(memory or Memory(PIECE))
    parts, read, stated = cutter.parts, content.read_blob, overrides.paths.get
    styles = {
        kind: _Style(kind, Attributes(m, mtime=overrides.mtime)) for kind, m in _MODES.items()
    }
    gathered = 0  # about; settling says it exactly
    tell = lines.append if lines is not None else None
    waiting = [(b"", "", iter(content.tree(tree).entries))]
    while waiting:
        folder, quoted, entries = waiting[-1]
        for name, entry in entries:
            path = folder + name
            said = stated(path)
            below: tuple[bytes, str, Iterator[tuple[bytes, Entry]]] | None = None
            size = 0
            if isinstance(entry, File):
                size = entry.size
                kind = filelist.EXECUTABLE if entry.executable else filelist.FILE
                style = _Style(kind, said) if said else styles[kind]
                if size <= SMALL:
                    data = read(entry) if size else b""
                    parts += (style.headers.of(path, size), data, _PADS[size % BLOCK])
                    digest = sha256(data).hexdigest() if tell else ""
                else:
                    parts.append(style.headers.of(path, size))
                    hasher = sha256()
                    for _ in _large(content, entry, cutter, hasher if tell else None):
                        yield from cutter.take()
                    parts.append(_PADS[size % BLOCK])
                    digest = hasher.hexdigest()
            elif isinstance(entry, Directory):
                style = _Style(filelist.DIRECTORY, said) if said else styles[filelist.DIRECTORY]
                digest = filelist.NONE
                parts.append(style.headers.of(path + b"/"))
                inside = content.tree(entry.digest)
                below = path + b"/", f"{quoted}{quote(name)}/", iter(inside.entries)
            else:
                style = _Style(filelist.LINK, said) if said else styles[filelist.LINK]
                digest = quote(entry.target)
                parts.append(header(SYMLINK, path, style.attributes, target=entry.target))
            if tell:
                tell(after(style.lead, size, digest, quoted + quote(name)))
            gathered += BLOCK + size
            if gathered >= PIECE:
                gathered = cutter.settle()
                yield from cutter.take()
            if below:
                waiting.append(below)
                break
        else:
            waiting.pop()
    parts.append(END)
    cutter.settle()
    yield from cutter.take()
    if len(last := cutter.last()):
        yield last


def _large(
    content: ContentStore, file: File, cutter: _Cutter, hasher: hashlib._Hash | None
) -> Iterator[None]:
    """Puts a file's content; comes up for air after each piece."""
    with content.open_blob(file.digest) as source:

        def read_into(room: memoryview) -> int:
            count = _read_into(source, room)
            if not count:
                raise _other_size(file)
            if hasher is not None:
                hasher.update(room[:count])
            return count

        yield from cutter.fill(file.size, read_into)
        if source.read(1):  # its reader has then seen the end, and verified the whole
            raise _other_size(file)


def _read_into(source: BinaryIO, room: memoryview) -> int:
    readinto = getattr(source, "readinto", None)
    if readinto is not None:
        return int(readinto(room))
    data = source.read(len(room))
    room[: len(data)] = data
    return len(data)


def _other_size(file: File) -> ReprobuildError:
    return ReprobuildError(
        "E-STORE-DAMAGED",
        f"the blob {file.digest} has another size than the {file.size} bytes that its tree says",
        object=f"blob {file.digest.hex}",
    )
