"""Content from a server: checked by its SHA-256 while it comes, named in BLAKE3, stored."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from reprobuild.adapters.remote.naming import Namer
from reprobuild.adapters.remote.server import Server, Trouble
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.adapters.remote.upload import PARALLEL, TRIES, wait_a_little
from reprobuild.core.digest import Digest
from reprobuild.core.remote.wire import EMPTY, Blob, split_tree
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree, check_depth
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TREE_LIMIT = 512 * 2**20
"""Bytes of a Tree message: about four million files."""

SMALL = 512 * 2**10
"""Blobs up to this size come in batches."""


def lied(node: str, what: str) -> ReprobuildError:
    """E-REMOTE-LIED of a node."""
    return ReprobuildError("E-REMOTE-LIED", f"{node} {what}", node=node)


class Downloader:
    """Downloads from one server. Safe for many threads."""

    def __init__(self, server: Server, namer: Namer, cancel: threading.Event) -> None:
        self._server, self._namer, self._cancel = server, namer, cancel
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
            return self.batch([blob])[blob]
        with self.open(blob) as file:
            return file.read()

    def batch(self, blobs: list[Blob]) -> dict[Blob, bytes]:
        """Small blobs, together not above what a batch may hold."""
        s = stubs()
        # Not every server keeps the empty blob.
        out: dict[Blob, bytes] = {b: b"" for b in blobs if b == EMPTY}
        if len(out) == len(blobs):
            return out
        request = s.re.BatchReadBlobsRequest(
            instance_name=self._server.instance,
            digests=[s.re.Digest(hash=b.hash, size_bytes=b.size) for b in blobs if b != EMPTY],
        )
        answer = self._again(request)
        for row in answer.responses:
            blob = Blob(row.digest.hash, row.digest.size_bytes)
            if row.status.code:
                code = "NOT_FOUND" if row.status.code == 5 else "UNAVAILABLE"
                raise Trouble(self._server.host, code, f"{blob.hash}: {row.status.message[:200]}")
            if Blob.of(row.data) != blob:
                raise lied(
                    self._server.host, f"gave other content for {blob.hash} than its SHA-256 says"
                )
            out[blob] = row.data
        absent = set(blobs) - set(out)
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
                if not trouble.gone or attempt == TRIES - 1 or self._cancel.is_set():
                    raise
                wait_a_little(self._cancel, attempt)
        raise AssertionError("the last attempt returns or raises")

    def open(self, blob: Blob) -> BinaryIO:
        """A stream that raises E-REMOTE-LIED instead of yielding a wrong content's end."""
        reader = _Checked(self._chunks(blob), blob, self._server.host)
        return cast("BinaryIO", io.BufferedReader(reader, 2**20))

    def _chunks(self, blob: Blob) -> Iterator[bytes]:
        """A large blob, taken up where a stream broke off."""
        s, offset, tries = stubs(), 0, 0
        prefix = f"{self._server.instance}/" if self._server.instance else ""
        compressed = self._server.abilities().zstd
        kind = "compressed-blobs/zstd" if compressed else "blobs"
        while True:
            request = s.stream.ReadRequest(
                resource_name=f"{prefix}{kind}/{blob.hash}/{blob.size}", read_offset=offset
            )
            try:
                for data in self._stream(request, blob, compressed=compressed):
                    if self._cancel.is_set():
                        raise ReprobuildError("E-INTERRUPTED", "stopped")
                    offset += len(data)
                    if offset > blob.size:
                        raise lied(
                            self._server.host, f"gave more than {blob.size} bytes of {blob.hash}"
                        )
                    yield data
                    tries = 0
                return
            except Trouble as trouble:
                tries += 1
                if not trouble.gone or tries >= TRIES:
                    raise
                wait_a_little(self._cancel, tries)

    def _stream(self, request: Any, blob: Blob, *, compressed: bool) -> Iterator[bytes]:
        seconds = 60.0 + blob.size / 2**17
        with self._server.failures():
            answers = self._server.stream.Read(
                request, timeout=seconds, metadata=self._server.metadata()
            )
            pieces = (answer.data for answer in answers)
            yield from self._inflate(pieces) if compressed else pieces

    def _inflate(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        import zstandard

        work = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj()
        try:
            for piece in pieces:
                if data := work.decompress(piece):
                    yield data
        except zstandard.ZstdError as error:
            raise lied(self._server.host, f"gave what is no zstd: {error}") from None

    # -- trees -------------------------------------------------------------------------------

    def tree(self, blob: Blob, limit: int) -> tuple[Digest, int]:
        """The tree of a Tree message, stored under our name, and the bytes that came for it.

        `limit` in bytes of all files. Raises `Trouble`, E-REMOTE-LIED, E-OUTPUT-SIZE, E-TREE.
        """
        data = self.read(blob, TREE_LIMIT)
        listing = _Listing(self._server.host, data, limit)
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
        batches = self._pool.map(self.batch, small)
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
        with self.open(blob) as file:
            return self._add(blob, file, executable)

    def _add(self, blob: Blob, source: BinaryIO, executable: bool) -> File:
        file = self._namer.content.add_blob(source, executable=executable, size=blob.size)
        self._namer.learn(file.digest, blob)
        return file

    def _here(self, blob: Blob, executable: bool) -> File | None:
        """A blob whose bytes went through our hands before, and are still in the store."""
        digest = self._namer.known(blob)
        if digest is None:
            return None
        try:
            with self._namer.content.open_blob(digest) as file:
                return self._namer.content.add_blob(file, executable=executable, size=blob.size)
        except ReprobuildError as error:
            if error.code != "E-STORE-MISSING":
                raise
            return None


class _Listing:
    """A Tree message taken apart: every directory under the SHA-256 of its very bytes."""

    def __init__(self, node: str, data: bytes, limit: int) -> None:
        self._node, self._limit = node, limit
        try:
            root, children = split_tree(data)
        except ValueError as error:
            raise lied(node, f"gave a Tree that is none: {error}") from None
        self._raw = {Blob.of(child): child for child in children}
        self._parsed: dict[Blob, Any] = {}
        self._root = self._parse(root)
        self.files: set[tuple[Blob, bool]] = set()
        self._total = 0
        self._walk()

    def _parse(self, raw: bytes) -> Any:
        message = stubs().re.Directory()
        try:
            message.ParseFromString(raw)
        except ValueError as error:  # protobuf's DecodeError is one
            raise lied(self._node, f"gave a Directory that is none: {error}") from None
        return message

    def _child(self, digest: Any) -> Any:
        blob = Blob(digest.hash, digest.size_bytes)
        found = self._parsed.get(blob)
        if found is None:
            raw = self._raw.get(blob)
            if raw is None:
                raise lied(self._node, f"gave a Tree without its directory {blob.hash[:80]}")
            found = self._parsed[blob] = self._parse(raw)
        return found

    def _walk(self) -> None:
        # One directory in many places is many files on a disk, so the sum goes over the places.
        stack = [(self._root, 0)]
        while stack:
            message, level = stack.pop()
            check_depth(level, "an output of a remote build")
            for file in message.files:
                blob = Blob(file.digest.hash, file.digest.size_bytes)
                if blob.size < 0 or len(blob.hash) != 64:
                    raise lied(self._node, f"gave a Directory with an impossible digest: {blob}")
                self._total += blob.size + 64
                self.files.add((blob, file.is_executable))
            self._total += 64 * (len(message.directories) + len(message.symlinks))
            if self._total > self._limit + 2**24:
                raise ReprobuildError(
                    "E-OUTPUT-SIZE",
                    f"an output of a remote build has more than {self._limit} bytes",
                )
            stack += [(self._child(d.digest), level + 1) for d in message.directories]

    def build(self, files: dict[tuple[Blob, bool], File], nodes: dict[Digest, Tree]) -> Digest:
        """Our trees, children first, into `nodes`; returns the root's digest."""
        made: dict[int, Digest] = {}
        stack = [self._root]
        while stack:
            message = stack[-1]
            below = [self._child(d.digest) for d in message.directories]
            if todo := [m for m in below if id(m) not in made]:
                stack += todo
                continue
            stack.pop()
            tree = self._tree(message, files, [made[id(m)] for m in below])
            made[id(message)] = tree.digest
            nodes[tree.digest] = tree
        return made[id(self._root)]

    def _tree(
        self, message: Any, files: dict[tuple[Blob, bool], File], below: list[Digest]
    ) -> Tree:
        entries: dict[bytes, Entry] = {}
        count = 0
        for file in message.files:
            blob = Blob(file.digest.hash, file.digest.size_bytes)
            entries[file.name.encode()] = files[blob, file.is_executable]
            count += 1
        for item, digest in zip(message.directories, below, strict=True):
            entries[item.name.encode()] = Directory(digest)
            count += 1
        for link in message.symlinks:
            entries[link.name.encode()] = Symlink(link.target.encode())
            count += 1
        if count != len(entries):
            raise lied(self._node, "gave a Directory that names one entry twice")
        return Tree.of(entries)


class _Checked(io.RawIOBase):
    """Chunks as a stream; the end comes only when the whole has the right SHA-256."""

    def __init__(self, chunks: Iterator[bytes], blob: Blob, node: str) -> None:
        super().__init__()
        self._chunks, self._blob, self._node = chunks, blob, node
        self._hasher, self._size, self._rest = hashlib.sha256(), 0, b""

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
            self._hasher.update(data or b"")
            self._size += len(data or b"")
            # Before the last bytes are handed out: who knows the size asks for no more.
            whole = data is None or self._size >= self._blob.size
            if whole and Blob(self._hasher.hexdigest(), self._size) != self._blob:
                raise lied(
                    self._node, f"gave other content for {self._blob.hash} than its SHA-256 says"
                )
            self._rest = data or b""
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
