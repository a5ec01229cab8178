"""A store tree as the bytes of a layer's tar, streamed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from reprobuild.core import filelist
from reprobuild.core.digest import Digest
from reprobuild.core.filelist import quote
from reprobuild.core.imagetar import BLOCK, DIRECTORY, END, REGULAR, SYMLINK, Attributes, header
from reprobuild.core.tree import Directory, File
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


class _Cutter:
    """Collects bytes into pieces of one size; `full` has those that are complete.

    Each piece has memory of its own: others may still be at work on the earlier ones.
    """

    __slots__ = ("_parts", "_size", "full")

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self.full: list[bytes | bytearray] = []

    def put(self, data: bytes) -> None:
        """Appends `data`."""
        self._parts.append(data)
        self._size += len(data)
        if self._size >= PIECE:
            whole = memoryview(b"".join(self._parts))
            cuts = range(0, self._size - PIECE + 1, PIECE)
            self.full += [bytes(whole[at : at + PIECE]) for at in cuts]
            self._keep(whole[len(cuts) * PIECE :])

    def fill(self, size: int, read_into: Callable[[memoryview], int]) -> Iterator[None]:
        """Appends `size` bytes, which `read_into` writes to where they belong, the number of them
        at a time that it returns; after each time, others have a turn."""
        piece, at = self._opened()
        while size:
            count = read_into(memoryview(piece)[at : min(PIECE, at + size)])
            at += count
            size -= count
            if at == PIECE:
                self.full.append(piece)
                piece, at = bytearray(PIECE), 0
            yield
        self._keep(memoryview(piece)[:at])

    def _opened(self) -> tuple[bytearray, int]:
        piece, at = bytearray(PIECE), self._size
        memoryview(piece)[:at] = b"".join(self._parts)
        return piece, at

    def _keep(self, rest: memoryview) -> None:
        self._parts, self._size = [rest], len(rest)

    def take(self) -> list[bytes | bytearray]:
        """The complete pieces, which are then forgotten."""
        full, self.full = self.full, []
        return full

    def last(self) -> bytes:
        """What is left."""
        return b"".join(self._parts)


def tar_pieces(
    content: ContentStore, tree: Digest, overrides: Overrides, lines: list[str] | None = None
) -> Iterator[bytes | bytearray]:
    """The tar of `tree`: each directory before what it holds, names in order of their bytes.

    Pieces have PIECE bytes, the last one fewer. `lines`, when given, gets the line of every entry
    (core/filelist.py), its content's SHA-256 included. Raises as reading the store does, and
    E-STORE-DAMAGED for a file of another size than the tree says.
    """
    cutter = _Cutter()
    put, read, stated = cutter.put, content.read_blob, overrides.paths.get
    plain, executable, link = (Attributes(m, mtime=overrides.mtime) for m in (0o644, 0o755, 0o777))
    tell = lines.append if lines is not None else None
    waiting = [(b"", "", iter(content.tree(tree).entries))]
    while waiting:
        folder, quoted, entries = waiting[-1]
        for name, entry in entries:
            path = folder + name
            size = 0
            if isinstance(entry, File):
                size = entry.size
                kind = filelist.EXECUTABLE if entry.executable else filelist.FILE
                said = stated(path) or (executable if entry.executable else plain)
                head = header(REGULAR, path, said, size=size)
                if size <= SMALL:
                    data = read(entry) if size else b""
                    put(head)
                    put(data)
                    put(_PADS[size % BLOCK])
                    digest = hashlib.sha256(data).hexdigest() if tell else ""
                else:
                    put(head)
                    hasher = hashlib.sha256()
                    for _ in _large(content, entry, cutter, hasher if tell else None):
                        yield from cutter.take()
                    put(_PADS[size % BLOCK])
                    digest = hasher.hexdigest()
            elif isinstance(entry, Directory):
                kind, digest, said = filelist.DIRECTORY, filelist.NONE, stated(path) or executable
                put(header(DIRECTORY, path, said))
            else:
                kind, digest, said = filelist.LINK, quote(entry.target), stated(path) or link
                put(header(SYMLINK, path, said, target=entry.target))
            if tell:
                tell(
                    filelist.line(
                        kind, said.mode, said.uid, said.gid, size, digest, quoted + quote(name)
                    )
                )
            if cutter.full:
                yield from cutter.take()
            if isinstance(entry, Directory):
                below = iter(content.tree(entry.digest).entries)
                waiting.append((path + b"/", f"{quoted}{quote(name)}/", below))
                break
        else:
            waiting.pop()
    put(END)
    yield from cutter.take()
    if last := cutter.last():
        yield last


def _large(
    content: ContentStore, file: File, cutter: _Cutter, hasher: hashlib._Hash | None
) -> Iterator[None]:
    """Puts a file's content; comes up for air after each part."""
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
