"""Reading a bundle: nothing is unpacked before its digest agrees, nothing grows beyond its word."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

from reprobuild.adapters.regular import open_regular
from reprobuild.core.bundle import format as layout
from reprobuild.core.bundle.format import Entry, Index, Trailer
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, decode
from reprobuild.errors import ReprobuildError

CHUNK = 2**20


def decompress(data: bytes, size: int, what: str) -> bytes:
    """The content of one frame that must have `size` bytes; raises E-BUNDLE."""
    import zstandard

    try:
        if zstandard.frame_content_size(data) != size:
            raise layout.off(f"{what} says another size than the {size} bytes that belong there")
        # The size in the frame's head is what gets allocated; it was just compared.
        raw = zstandard.ZstdDecompressor().decompress(
            data, max_output_size=size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise layout.off(f"{what} cannot be unpacked: {error}") from error
    if len(raw) != size:
        raise layout.off(f"{what} has {len(raw)} bytes instead of {size}")
    return raw


class BundleReader:
    """An opened bundle; a context manager. Its index is checked, its content is not yet."""

    def __init__(self, path: Path) -> None:
        """Raises E-BUNDLE, E-BUNDLE-LIMIT, or E-USAGE when there is no such regular file."""
        self.path = path
        try:
            self._file = open_regular(path)
        except OSError as error:
            raise ReprobuildError(
                "E-USAGE", f"cannot open {path}: {error.strerror}", file=str(path)
            ) from error
        try:
            self._open()
        except ReprobuildError as error:
            self._file.close()
            error.facts.setdefault("file", str(path))
            raise
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        try:
            self.size = self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise layout.off(f"{self.path} is no file that can be read in parts") from error
        self.trailer = Trailer.decode(
            self._at(max(0, self.size - layout.TRAILER_SIZE), layout.TRAILER_SIZE), self.size
        )
        trailer = self.trailer
        start = trailer.head + trailer.pieces
        raw = decompress(self._at(start, trailer.index), trailer.index_size, "the index")
        if layout.index_digest(raw) != trailer.digest:
            raise layout.off("the index has another digest than the bundle says")
        self.index: Index = layout.decode_index(raw, trailer.pieces, self.size)
        self._signatures = self._at(start + trailer.index, trailer.signatures)
        self._check_part(
            "boot", self._at(self.size - layout.TRAILER_SIZE - trailer.boot, trailer.boot)
        )

    def _at(self, offset: int, size: int) -> bytes:
        try:
            data = os.pread(self._file.fileno(), size, offset)
            while len(data) < size and (more := self._more(offset + len(data), size - len(data))):
                data += more
        except OSError as error:
            raise layout.off(f"the bundle cannot be read: {error.strerror}") from error
        return data

    def _more(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)

    def _check_part(self, name: str, data: bytes) -> None:
        """Compares a part outside the pieces with its digest in the manifest."""
        if self.index.manifest.get(name) != Digest.of(data).hex:
            raise layout.off(f"the bundle's {name} part was changed")

    @property
    def manifest(self) -> dict[str, Value]:
        """What the bundle says of itself."""
        return self.index.manifest

    @property
    def digest(self) -> Digest:
        """What names the bundle, and what is signed."""
        return self.trailer.digest

    def attached(self) -> dict[str, Value]:
        """Signatures and proofs: what stands beside the index, unverified; raises E-BUNDLE."""
        try:
            document = decode(self._signatures)
        except ReprobuildError as error:
            raise layout.off("the list of signatures is off") from error
        if not isinstance(document, dict) or set(document) != {"proofs", "signatures"}:
            raise layout.off("the list of signatures is off")
        return document

    def signatures(self) -> Value:
        """The signatures' list, unverified; raises E-BUNDLE."""
        return self.attached()["signatures"]

    def proofs(self) -> Value:
        """The proofs' list, unverified; raises E-BUNDLE."""
        return self.attached()["proofs"]

    def check_head(self) -> None:
        """Reads the head and compares its digest; raises E-BUNDLE."""
        from reprobuild.core.digest import blob_hasher

        hasher = blob_hasher()
        for offset in range(0, self.trailer.head, CHUNK):
            hasher.update(self._at(offset, min(CHUNK, self.trailer.head - offset)))
        if self.manifest.get("head") != hasher.hexdigest():
            raise layout.off("the bundle's head (the script and the tool in it) was changed")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> BundleReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- content -------------------------------------------------------------------------------

    def piece(self, number: int) -> bytes:
        """The content of one piece, verified; raises E-BUNDLE naming it."""
        return self._unpack(number, self._packed(number, self._offset(number)))

    def _offset(self, number: int) -> int:
        return self.trailer.head + sum(p.size for p in self.index.pieces[:number])

    def _packed(self, number: int, offset: int) -> bytes:
        return self._at(offset, self.index.pieces[number].size)

    def _unpack(self, number: int, packed: bytes) -> bytes:
        piece = self.index.pieces[number]
        what = f"piece {number + 1} of {len(self.index.pieces)}"
        if len(packed) != piece.size or Digest.of(packed) != piece.digest:
            raise layout.off(f"{what} was changed or cut short", piece=number + 1)
        return decompress(packed, layout.piece_content(self.index.content, number), what)

    def read(self, wanted: Entry) -> bytes:
        """One object, without reading more of the file than its pieces.

        Raises E-BUNDLE-INCOMPLETE when the bundle has no such object.
        """
        position = 0
        for entry in self.index:
            if entry.kind == wanted.kind and entry.digest == wanted.digest:
                first, last = position // layout.PIECE, -(-(position + entry.size) // layout.PIECE)
                data = b"".join(self.piece(n) for n in range(first, last))
                start = position - first * layout.PIECE
                return data[start : start + entry.size]
            position += entry.size
        raise ReprobuildError("E-BUNDLE-INCOMPLETE", f"the {wanted} is not in the bundle")

    def entries(self, wanted: list[bool]) -> Iterator[tuple[Entry, BinaryIO]]:
        """The wanted objects in order, each with a reader that is drained before the next."""
        return ObjectStream(self).entries(wanted)

    def pieces(self, needed: list[bool]) -> Iterator[bytes | None]:
        """The content of every piece in order, None for those that are not needed."""
        workers = min(4, len(os.sched_getaffinity(0)))
        waiting: deque[Future[bytes] | None] = deque()
        offset = self.trailer.head
        with ThreadPoolExecutor(workers) as pool:
            try:
                for number, piece in enumerate(self.index.pieces):
                    if needed[number]:
                        packed = self._packed(number, offset)
                        waiting.append(pool.submit(self._unpack, number, packed))
                    else:
                        waiting.append(None)
                    offset += piece.size
                    if len(waiting) > workers + 1:
                        yield _result(waiting.popleft())
                while waiting:
                    yield _result(waiting.popleft())
            finally:
                for future in waiting:
                    if future is not None:
                        future.cancel()


def _result(future: Future[bytes] | None) -> bytes | None:
    return None if future is None else future.result()


class ObjectStream:
    """Walks the objects in order; each is read as a stream or passed over.

    It is said beforehand which are wanted, so that pieces without any are not even read.
    """

    def __init__(self, reader: BundleReader) -> None:
        self._reader = reader

    def entries(self, wanted: list[bool]) -> Iterator[tuple[Entry, BinaryIO]]:
        """The wanted entries, each with a reader that must be drained before the next is taken."""
        index = self._reader.index
        needed = [False] * len(index.pieces)
        position = 0
        for number, (_, _, size) in enumerate(index.rows()):
            if wanted[number] and size:
                first, last = position // layout.PIECE, (position + size - 1) // layout.PIECE
                for piece in range(first, last + 1):
                    needed[piece] = True
            position += size
        pieces = self._reader.pieces(needed)
        source = _Pieces(pieces)
        try:
            for number, entry in enumerate(index):
                if wanted[number]:
                    whole = source.whole(entry.size)
                    limited = _Limited(source, entry.size) if whole is None else io.BytesIO(whole)
                    yield entry, cast(BinaryIO, limited)
                else:
                    source.skip(entry.size)
        finally:
            pieces.close()  # type: ignore[attr-defined]


class _Pieces:
    """The pieces as one stream of bytes, parts of which may be passed over."""

    def __init__(self, pieces: Iterator[bytes | None]) -> None:
        self._pieces = pieces
        self._view = memoryview(b"")
        self._absent = 0  # bytes of a piece that was not read, still ahead

    def _next(self) -> None:
        piece = next(self._pieces, b"")
        if piece is None:
            self._view, self._absent = memoryview(b""), layout.PIECE
        else:
            self._view, self._absent = memoryview(piece), 0

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty only at the end."""
        if not self._view:
            self._next()
        out = bytes(self._view[:size])
        self._view = self._view[len(out) :]
        return out

    def whole(self, size: int) -> bytes | None:
        """The next `size` bytes where they lie in one piece that was read already."""
        if size > len(self._view) or not size:
            return None
        return self.read(size)

    def skip(self, size: int) -> None:
        """Passes over `size` bytes."""
        while size > 0:
            if not self._view and not self._absent:
                self._next()
                if not self._view and not self._absent:
                    return
            step = min(size, len(self._view) or self._absent)
            if self._view:
                self._view = self._view[step:]
            else:
                self._absent -= step
            size -= step


class _Limited(io.RawIOBase):
    """The next `size` bytes of a stream."""

    def __init__(self, source: _Pieces, size: int) -> None:
        super().__init__()
        self._source, self._left = source, size

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, all that are left for -1."""
        take = self._left if size is None or size < 0 else min(size, self._left)
        parts: list[bytes] = []
        while take > 0:
            data = self._source.read(take)
            if not data:
                break
            parts.append(data)
            take -= len(data)
            self._left -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fills `buffer`."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
