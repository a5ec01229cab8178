"""Small stream parts: a reader over a generator, making ahead, and hashing on the way."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Semaphore

Piece = bytes | bytearray | memoryview
"""A part of a stream, which nobody changes once it was handed on."""

AHEAD = 4
"""Pieces that are made before they are asked for."""

BEHIND = 8
"""Pieces that hashing may be behind by."""


class PieceReader:
    """A file-like reader over pieces of bytes, with sha256 (unless not `hashed`) and size of what
    was read."""

    def __init__(self, pieces: Iterator[Piece], *, hashed: bool = True) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._hashed = hashed
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, fewer only at the end; all of them when negative."""
        parts: list[memoryview] = []
        have = 0
        while size < 0 or have < size:
            if not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
                continue  # an empty piece is not the end
            part = self._rest if size < 0 else self._rest[: size - have]
            self._rest = self._rest[len(part) :]
            parts.append(part)
            have += len(part)
        data = b"".join(parts)
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
        with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
            maker = pool.submit(work)
            try:
                while (piece := made.get()) is not None:
                    room.release()
                    yield piece
                maker.result()
            finally:
                stopped = True
                room.release()
    finally:
        close(pieces)


class Measure:
    """Passes pieces on, keeping sha256 and size. A thread of its own hashes; both figures are whole
    once the last piece was taken. Nobody may change a piece that was handed on."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0

    def over(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The same pieces."""
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="hash") as pool:
            for piece in pieces:
                pending.append(pool.submit(self.sha256.update, piece))
                self.size += len(piece)
                if len(pending) > BEHIND:
                    pending.popleft().result()
                yield piece
            for one in pending:
                one.result()
