"""Small stream parts: a reader over a generator, and hashing on the way."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

BEHIND = 8
"""Pieces that hashing may be behind by."""


class PieceReader:
    """A file-like reader over pieces of bytes, with sha256 (unless not `hashed`) and size of what
    was read."""

    def __init__(self, pieces: Iterator[bytes | bytearray], *, hashed: bool = True) -> None:
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
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


class Measure:
    """Passes pieces on, keeping sha256 and size. A thread of its own hashes; both figures are whole
    once the last piece was taken. Nobody may change a piece that was handed on."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0

    def over(self, pieces: Iterable[bytes | bytearray]) -> Iterator[bytes | bytearray]:
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
