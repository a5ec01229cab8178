"""Small stream parts: a reader over a generator, and hashing on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator


class PieceReader:
    """A file-like reader over pieces of bytes, with sha256 and size of what was read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, fewer only at the end; all of them when negative."""
        parts: list[bytes] = []
        have = 0
        while size < 0 or have < size:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = piece
                continue  # an empty piece is not the end
            piece = self._rest if size < 0 else self._rest[: size - have]
            self._rest = self._rest[len(piece) :]
            parts.append(piece)
            have += len(piece)
        data = b"".join(parts)
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
    """Passes pieces on, keeping sha256 and size."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces."""
        for piece in pieces:
            self.sha256.update(piece)
            self.size += len(piece)
            yield piece
