"""Small stream parts: memory for pieces, a reader over a generator, making ahead, and hashing."""

from __future__ import annotations

import hashlib
from _queue import SimpleQueue  # queue imports more than this
from collections.abc import Callable, Iterator
from threading import Semaphore
from typing import cast

from reprobuild.adapters.buffers import page_aligned
from reprobuild.adapters.oci.workers import Workers

Piece = bytes | bytearray | memoryview
"""A part of a stream, which nobody changes once it was handed on: not before whoever had it last
gives its memory back (`Memory`), where it has any to give back."""

AHEAD = 4
"""Pieces that are made before they are asked for."""


class Memory:
    """Room for pieces of one size in bytes, used again when it is given back.

    Fresh memory costs the kernel about as much as copying into it. What never comes back is
    collected like any other.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[memoryview] = []
        self._out: dict[int, memoryview] = {}

    def take(self) -> memoryview:
        """Room for a piece, with anything in it."""
        room = self._free.pop() if self._free else page_aligned(self._size)
        self._out[id(room)] = room  # which keeps it, and so its number
        return room

    def give_back(self, piece: Piece) -> None:
        """Frees a piece's room, when it is one of these: nobody reads it, or a part of it, now."""
        room = self._out.pop(id(piece), None)
        if room is not None:
            self._free.append(room)


class PieceReader:
    """A file-like reader over pieces of bytes, with sha256 (unless not `hashed`) and size of what
    was read."""

    def __init__(self, pieces: Iterator[Piece], *, hashed: bool = True) -> None:
        self._pieces = pieces
        self._rest: Piece = b""
        self._hashed = hashed
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, all of one piece, none only at the end; the whole when negative.

        What is returned stays as it is, also when the piece's memory is used again.
        """
        if size < 0:
            return b"".join(iter(lambda: self.read(2**20), b""))
        while not self._rest:  # an empty piece is not the end
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        if isinstance(self._rest, memoryview) or len(self._rest) > size:
            whole = memoryview(self._rest)
            data = bytes(whole[:size])
            self._rest = whole[size:]
        else:  # not copied
            data, self._rest = cast(bytes, self._rest), b""
        if self._hashed:
            self.sha256.update(data)
        self.size += len(data)
        return data

    def readable(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """Ends the generator, which releases what it holds."""
        close(self._pieces)


def close(pieces: Iterator[Piece]) -> None:
    """Ends a generator; other iterators have nothing to end."""
    end = getattr(pieces, "close", None)
    if end is not None:
        end()


def ahead(pieces: Iterator[Piece], most: int = AHEAD) -> Iterator[Piece]:
    """The same pieces, made by a thread of its own: at most `most` of them wait to be taken.

    What making them raises comes out in its place. Who stops early closes this generator: it
    returns when the thread has ended, and `pieces` is closed.
    """
    made: SimpleQueue[Piece | None] = SimpleQueue()
    room = Semaphore(most - 1)
    stopped = False

    def work() -> None:
        try:
            for piece in pieces:
                made.put(piece)
                room.acquire()
                if stopped:
                    break
        finally:
            made.put(None)

    try:
        with Workers(1, "ahead") as maker:
            making = maker.do(work)
            try:
                while (piece := made.get()) is not None:
                    room.release()
                    yield piece
                making.result()
            finally:
                stopped = True
                room.release()
    finally:
        close(pieces)


def passed(pieces: Iterator[Piece], done: Callable[[Piece], None]) -> Iterator[Piece]:
    """The same pieces; `done` is told of each when the next one is asked for."""
    for piece in pieces:
        yield piece
        done(piece)


class Measure:
    """SHA-256 and size of the pieces that are shown to it; `done` is then told of each."""

    def __init__(self, done: Callable[[Piece], None]) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0
        self._done = done

    def show(self, piece: Piece) -> None:
        """Takes a piece's turn; nobody else reads it any more when `done` is told."""
        self.sha256.update(piece)
        self.size += len(piece)
        self._done(piece)
