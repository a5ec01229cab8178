"""Content from a server: checked by its digest, named in BLAKE3, stored.

Where the server's digest is the store's own, storing checks it: what is false has another name.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from reprobuild.adapters.remote.listing import Listing
from reprobuild.adapters.remote.naming import Namer
from reprobuild.adapters.remote.server import Server, Trouble, lied
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.adapters.remote.upload import PARALLEL, TRIES, wait_a_little
from reprobuild.core.digest import Digest, Hasher
from reprobuild.core.remote.function import Function
from reprobuild.core.remote.wire import Blob
from reprobuild.core.tree import File, Tree
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TREE_LIMIT = 512 * 2**20
"""Bytes of a Tree message: about four million files."""

SMALL = 512 * 2**10
"""Blobs up to this size come in batches."""

STEP = 2**20
"""Bytes that a compressed stream is inflated by before its size is looked at."""


class Downloader:
    """Downloads from one server. Safe for many threads."""

    def __init__(self, server: Server, namer: Namer, cancel: threading.Event) -> None:
        self._server, self._namer, self._cancel = server, namer, cancel
        self._function = namer.function
        self._empty = self._function.blob(b"")
        self._pool = ThreadPoolExecutor(PARALLEL, "download")

    def close(self) -> None:
        """Ends what is under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- bytes -------------------------------------------------------------------------------

    def read(self, blob: Blob, limit: int) -> bytes:
        """A blob's verified bytes; raises `Trouble` (NOT_FOUND too), E-REMOTE-LIED."""
        if not 0 <= blob.size <= limit:
            raise lied(self._server.host, f"names a blob of {blob.size} bytes where none may be so")
        if blob.size <= SMALL:
            return self._batch([blob], self._function)[blob]
        with self._open(blob, self._function) as file:
            return file.read()

    def head(self, blob: Blob, size: int) -> bytes:
        """The first bytes of a blob, not verified: its digest says nothing of a part."""
        return b"".join(self._chunks(blob, size))

    def _batch(self, blobs: list[Blob], check: Function | None) -> dict[Blob, bytes]:
        """Small blobs, together not above what a batch may hold; without `check` only as large as
        they should be."""
        s = stubs()
        # Not every server keeps the empty blob.
        out: dict[Blob, bytes] = {b: b"" for b in blobs if b == self._empty}
        wanted = set(blobs) - set(out)
        if not wanted:
            return out
        request = s.re.BatchReadBlobsRequest(
            instance_name=self._server.instance,
            digests=[
                s.re.Digest(hash=b.hash, size_bytes=b.size) for b in blobs if b != self._empty
            ],
            digest_function=self._function.number,
        )
        answer = self._again(request)
        for row in answer.responses:
            blob = Blob(row.digest.hash, row.digest.size_bytes)
            if blob not in wanted:  # nobody asked for it: neither content nor status counts
                continue
            if row.status.code:
                code = "NOT_FOUND" if row.status.code == 5 else "UNAVAILABLE"
                raise Trouble(self._server.host, code, f"{blob.hash}: {row.status.message[:200]}")
            if len(row.data) != blob.size or (check and check.blob(row.data) != blob):
                raise self._false(blob)
            out[blob] = row.data
        absent = wanted - set(out)
        if absent:
            raise lied(
                self._server.host, f"said nothing of {min(absent).hash}, which was asked for"
            )
        return out

    def _again(self, request: Any) -> Any:
        for attempt in range(TRIES):
            try:
                return self._server.call(self._server.cas.BatchReadBlobs, request, 300.0)
            except Trouble as trouble:
                if not trouble.stammers or attempt == TRIES - 1 or self._cancel.is_set():
                    raise
                wait_a_little(self._cancel, attempt)
        raise AssertionError("the last attempt returns or raises")

    def _false(self, blob: Blob) -> ReprobuildError:
        return lied(
            self._server.host,
            f"gave other content for {blob.hash} than its {self._function.name} says",
        )

    def _open(self, blob: Blob, check: Function | None) -> BinaryIO:
        """A stream that raises E-REMOTE-LIED instead of yielding a wrong content's end; without
        `check` only of one that has another size."""
        hasher = check.hasher() if check else None
        reader = _Checked(self._chunks(blob), blob, hasher, self._false(blob))
        return cast("BinaryIO", io.BufferedReader(reader, 2**20))

    def _chunks(self, blob: Blob, limit: int = 0) -> Iterator[bytes]:
        """A large blob, taken up where a stream broke off; with `limit` its first bytes alone,
        which do not come compressed: a compressed stream is cut nowhere."""
        s, offset, tries = stubs(), 0, 0
        prefix = f"{self._server.instance}/" if self._server.instance else ""
        compressed = self._server.abilities().zstd and not limit
        size = min(blob.size, limit or blob.size)
        kind = "compressed-blobs/zstd" if compressed else "blobs"
        while True:
            request = s.stream.ReadRequest(
                resource_name=f"{prefix}{kind}/{self._function.segment}{blob.hash}/{blob.size}",
                read_offset=offset,
                read_limit=size - offset if limit else 0,
            )
            try:
                for data in self._stream(request, size, compressed=compressed):
                    if self._cancel.is_set():
                        raise ReprobuildError("E-INTERRUPTED", "stopped")
                    offset += len(data)
                    if limit and offset >= size:  # not every server heeds a limit
                        yield data[: len(data) - (offset - size)]
                        return
                    if offset > blob.size:
                        raise lied(
                            self._server.host, f"gave more than {blob.size} bytes of {blob.hash}"
                        )
                    yield data
                    tries = 0
                return
            except Trouble as trouble:
                tries += 1
                if not trouble.stammers or tries >= TRIES:
                    raise
                wait_a_little(self._cancel, tries)

    def _stream(self, request: Any, size: int, *, compressed: bool) -> Iterator[bytes]:
        seconds = 60.0 + size / 2**17
        with self._server.failures():
            answers = self._server.stream.Read(
                request, timeout=seconds, metadata=self._server.metadata()
            )
            pieces = (answer.data for answer in answers)
            yield from self._inflate(pieces) if compressed else pieces

    def _inflate(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """What was compressed, `STEP` bytes at most at a time."""
        import zstandard

        # In bounded steps: a kilobyte may stand for a hundred megabytes. `read1` hands out what
        # there is, so that a stream that breaks off is taken up where it broke.
        work = zstandard.ZstdDecompressor(max_window_size=2**27)
        source = cast("BinaryIO", _Pieces(pieces))
        reader = work.stream_reader(source, read_across_frames=True)
        try:
            while data := reader.read1(STEP):
                yield data
        except zstandard.ZstdError as error:
            raise lied(self._server.host, f"gave what is no zstd: {error}") from None

    # -- trees -------------------------------------------------------------------------------

    def tree(self, blob: Blob, limit: int) -> tuple[Digest, int]:
        """The tree of a Tree message, stored under our name, and the bytes that came for it.

        `limit` in bytes of all files. Raises `Trouble`, E-REMOTE-LIED, E-OUTPUT-SIZE, E-TREE.
        """
        data = self.read(blob, TREE_LIMIT)
        listing = Listing(self._server.host, data, limit, self._function)
        files, came = self._files(listing.files)
        nodes: dict[Digest, Tree] = {}
        root = listing.build(files, nodes)
        self._namer.content.add_trees(nodes)
        self._namer.flush()
        return root, came + len(data)

    def _files(self, wanted: set[tuple[Blob, bool]]) -> tuple[dict[tuple[Blob, bool], File], int]:
        out: dict[tuple[Blob, bool], File] = {}
        came = 0
        small: list[list[Blob]] = [[]]
        size, most = 0, self._server.abilities().batch
        large: list[tuple[Blob, bool]] = []
        modes: dict[Blob, list[bool]] = {}
        for blob, executable in sorted(wanted):
            found = self._here(blob, executable)
            if found is not None:
                out[blob, executable] = found
                continue
            if blob.size > SMALL:
                large.append((blob, executable))
                continue
            modes.setdefault(blob, []).append(executable)
            if len(modes[blob]) > 1:
                continue
            if small[-1] and size + blob.size + 200 > most:
                small.append([])
                size = 0
            small[-1].append(blob)
            size += blob.size + 200
        check = None if self._namer.ours else self._function
        batches = self._pool.map(lambda blobs: self._batch(blobs, check), small)
        streams = [self._pool.submit(self._large, blob, mode) for blob, mode in large]
        for batch in batches:
            for blob, data in batch.items():
                came += len(data)
                for mode in modes[blob]:
                    out[blob, mode] = self._add(blob, io.BytesIO(data), mode)
        for (blob, mode), future in zip(large, streams, strict=True):
            out[blob, mode] = future.result()
            came += blob.size
        return out, came

    def _large(self, blob: Blob, executable: bool) -> File:
        with self._open(blob, None if self._namer.ours else self._function) as file:
            return self._add(blob, file, executable)

    def _add(self, blob: Blob, source: BinaryIO, executable: bool) -> File:
        """Stores what came for a blob. Where its name is ours, what is false is stored, too, under
        the name that it has, and nothing refers to it."""
        file = self._namer.content.add_blob(source, executable=executable, size=blob.size)
        if self._namer.ours and file.digest.hex != blob.hash:
            raise self._false(blob)
        self._namer.learn(file.digest, blob)
        return file

    def _here(self, blob: Blob, executable: bool) -> File | None:
        """A blob whose bytes are in the store."""
        digest = self._namer.known(blob)
        if digest is None:
            return None
        try:
            with self._namer.content.open_blob(digest) as file:
                return self._namer.content.add_blob(file, executable=executable, size=blob.size)
        except ReprobuildError as error:
            if error.code == "E-STORE-MISSING":
                return None
            if error.code == "E-CONTENT-SIZE":
                raise self._false(blob) from None
            raise


class _Pieces:
    """Pieces as a file to read from: some bytes at a time, none at the end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._piece = iter(pieces), io.BytesIO()

    def read(self, size: int) -> bytes:
        """At most `size` bytes: who reads may have room for no more."""
        while not (data := self._piece.read(size)):
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._piece = io.BytesIO(piece)
        return data


class _Checked(io.RawIOBase):
    """Chunks as a stream; the end comes only when the whole has the right size and, by `hasher`,
    the right digest. Else `false` is raised."""

    def __init__(
        self, chunks: Iterator[bytes], blob: Blob, hasher: Hasher | None, false: ReprobuildError
    ) -> None:
        super().__init__()
        self._chunks, self._blob, self._false = chunks, blob, false
        self._hasher, self._size, self._rest = hasher, 0, b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Some bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        while not self._rest:
            data = next(self._chunks, None)
            if data is None and self._size >= self._blob.size:
                return 0
            if self._hasher is not None:
                self._hasher.update(data or b"")
            self._size += len(data or b"")
            # Before the last bytes are handed out: who knows the size asks for no more.
            if (data is None or self._size >= self._blob.size) and not self._right():
                raise self._false
            self._rest = data or b""
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _right(self) -> bool:
        digest = self._blob.hash if self._hasher is None else self._hasher.hexdigest()
        return Blob(digest, self._size) == self._blob
