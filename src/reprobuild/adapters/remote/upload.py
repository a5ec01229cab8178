"""Content to a server: what it lacks, in batches or streams, each blob once however many ask."""

from __future__ import annotations

import io
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from reprobuild.adapters.remote.naming import Namer, Source
from reprobuild.adapters.remote.server import MESSAGE, Server, Trouble
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.core.digest import Digest
from reprobuild.core.remote.wire import Blob
from reprobuild.errors import ReprobuildError

CHUNK = 2**20
PARALLEL = 4
TRIES = 6
WORTH_COMPRESSING = 128 * 2**10
_ASK = 20_000
"""Digests of one FindMissingBlobs: about 1.5 MB."""


class Uploader:
    """Uploads to one server. Safe for many threads: who wants what another sends waits for it."""

    def __init__(self, server: Server, namer: Namer, cancel: threading.Event) -> None:
        self._server, self._namer, self._cancel = server, namer, cancel
        self._lock = threading.Lock()
        self._function = namer.function
        self._empty = self._function.blob(b"")
        self._there: set[Blob] = {self._empty}
        self._trees: set[Digest] = set()
        self._flying: dict[Blob, threading.Event] = {}
        self._pool = ThreadPoolExecutor(PARALLEL, "upload")

    def close(self) -> None:
        """Ends what is under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def doubt(self) -> None:
        """The server lacked something after all: everything is asked about anew."""
        with self._lock:
            self._there = {self._empty}
            self._trees = set()

    def ensure(self, offers: Mapping[Blob, Source], trees: Iterable[Digest] = ()) -> int:
        """Makes sure that all of it is there; returns the bytes that were sent.

        Raises `Trouble`, E-STORE-DAMAGED and E-STORE-MISSING for content of ours.
        """
        with self._lock:
            known = set(self._trees)
        before = set(known)
        wanted = dict(offers)
        wanted.update(self._namer.below(list(trees), known))
        sent = self._settle(wanted)
        with self._lock:
            self._trees |= known - before
        return sent

    def _settle(self, wanted: dict[Blob, Source]) -> int:
        sent = 0
        while wanted:
            done = threading.Event()
            with self._lock:
                wanted = {b: s for b, s in wanted.items() if b not in self._there}
                others = {self._flying[b] for b in wanted if b in self._flying}
                mine = {b: s for b, s in wanted.items() if b not in self._flying}
                self._flying.update(dict.fromkeys(mine, done))
            try:
                if mine:
                    sent += self._send(mine, self.missing(mine))
                    with self._lock:
                        self._there.update(mine)
            finally:
                with self._lock:
                    for blob in mine:
                        del self._flying[blob]
                done.set()
            for other in others:
                while not other.wait(0.5):
                    self._go_on()
        return sent

    def _go_on(self) -> None:
        if self._cancel.is_set():
            raise ReprobuildError("E-INTERRUPTED", "stopped")

    def missing(self, blobs: Iterable[Blob]) -> list[Blob]:
        """Which of them the server lacks."""
        s, out = stubs(), []
        every = list(blobs)
        for start in range(0, len(every), _ASK):
            self._go_on()
            request = s.re.FindMissingBlobsRequest(
                instance_name=self._server.instance,
                blob_digests=[
                    s.re.Digest(hash=b.hash, size_bytes=b.size) for b in every[start : start + _ASK]
                ],
                digest_function=self._function.number,
            )
            answer = self._server.call(self._server.cas.FindMissingBlobs, request, 300.0)
            out += [Blob(d.hash, d.size_bytes) for d in answer.missing_blob_digests]
        return out

    # -- sending -----------------------------------------------------------------------------

    def _send(self, sources: Mapping[Blob, Source], missing: list[Blob]) -> int:
        most = self._server.abilities().batch
        batches: list[list[Blob]] = []
        size = most
        streams: list[Blob] = []
        for blob in missing:
            if blob not in sources:
                continue  # an answer to something that nobody asked
            if blob.size > most // 2:
                streams.append(blob)
                continue
            if size + blob.size + 200 > most:
                batches.append([])
                size = 0
            batches[-1].append(blob)
            size += blob.size + 200
        jobs: list[Callable[[], None]] = [
            lambda batch=batch: self._batch(sources, batch)  # type: ignore[misc]
            for batch in batches
        ]
        jobs += [lambda blob=blob: self._stream(blob, sources[blob]) for blob in streams]  # type: ignore[misc]
        if len(jobs) == 1:
            jobs[0]()
        else:
            for future in [self._pool.submit(job) for job in jobs]:
                future.result()
        return sum(blob.size for blob in missing if blob in sources)

    def _open(self, source: Source) -> BinaryIO:
        return (
            io.BytesIO(source)
            if isinstance(source, bytes)
            else self._namer.content.open_blob(source)
        )

    def _batch(self, sources: Mapping[Blob, Source], blobs: list[Blob]) -> None:
        s = stubs()
        request = s.re.BatchUpdateBlobsRequest(
            instance_name=self._server.instance, digest_function=self._function.number
        )
        for blob in blobs:
            with self._open(sources[blob]) as file:
                data = file.read()
                while more := file.read(CHUNK):
                    data += more
            request.requests.add(
                digest=s.re.Digest(hash=blob.hash, size_bytes=blob.size), data=data
            )
        self._again(lambda: self._put(request))

    def _put(self, request: Any) -> None:
        answer = self._server.call(self._server.cas.BatchUpdateBlobs, request, 300.0)
        for row in answer.responses:
            if row.status.code:
                code = stubs().grpc.StatusCode
                name = next((c.name for c in code if c.value[0] == row.status.code), "UNKNOWN")
                raise Trouble(self._server.host, name, row.status.message[:300])

    def _again(self, job: Callable[[], None]) -> None:
        """Tries a few times while the server stammers."""
        for attempt in range(TRIES):
            self._go_on()
            try:
                return job()
            except Trouble as trouble:
                if not trouble.stammers or attempt == TRIES - 1:
                    raise
                self._cancel.wait(0.05 * 2**attempt)
        return None

    def _stream(self, blob: Blob, source: Source) -> None:
        """ByteStream.Write, taken up where it broke off."""
        compressed = self._server.abilities().zstd and blob.size >= WORTH_COMPRESSING
        kind = "compressed-blobs/zstd" if compressed else "blobs"
        prefix = f"{self._server.instance}/" if self._server.instance else ""
        name = (
            f"{prefix}uploads/{uuid.uuid4()}/{kind}/{self._function.segment}{blob.hash}/{blob.size}"
        )
        tries = 0
        offset = 0
        while True:
            self._go_on()
            try:
                return self._write(name, blob, source, offset, compressed=compressed)
            except Trouble as trouble:
                tries += 1
                if trouble.code == "ALREADY_EXISTS":
                    return None
                if not trouble.stammers or tries >= TRIES:
                    raise
                self._cancel.wait(0.05 * 2**tries)
                # Of a compressed stream only the server knows where its frames lie: from the top.
                found = 0 if compressed else self._committed(name, blob)
                if found >= blob.size:
                    return None
                tries = 0 if found > offset else tries
                offset = found

    def _committed(self, name: str, blob: Blob) -> int:
        s = stubs()
        request = s.stream.QueryWriteStatusRequest(resource_name=name)
        try:
            answer = self._server.call(self._server.stream.QueryWriteStatus, request)
        except Trouble:
            return 0
        if answer.complete:
            return blob.size
        return answer.committed_size if 0 <= answer.committed_size < blob.size else 0

    def _write(
        self, name: str, blob: Blob, source: Source, offset: int, *, compressed: bool
    ) -> None:
        s, broken = stubs(), list[BaseException]()

        def pieces() -> Iterator[bytes]:
            with self._open(source) as file:
                if compressed:
                    yield from _compress(file)
                    return
                skip = offset
                while data := file.read(CHUNK):
                    if skip >= len(data):
                        skip -= len(data)
                        continue
                    yield data[skip:]
                    skip = 0

        def requests() -> Iterator[Any]:
            at = offset
            try:
                before: bytes | None = None
                for data in pieces():
                    if before is not None:
                        yield s.stream.WriteRequest(
                            resource_name=name, write_offset=at, data=before
                        )
                        at += len(before)
                    before = data
                yield s.stream.WriteRequest(
                    resource_name=name, write_offset=at, data=before or b"", finish_write=True
                )
            except BaseException as error:
                # gRPC would only say that an iterator failed
                broken.append(error)
                raise

        seconds = 60.0 + blob.size / 2**17
        try:
            with self._server.failures():
                answer = self._server.stream.Write(
                    requests(), timeout=seconds, metadata=self._server.metadata()
                )
        except Trouble:
            if broken and isinstance(broken[0], ReprobuildError):
                raise broken[0] from None
            raise
        if not compressed and answer.committed_size != blob.size:
            raise Trouble(
                self._server.host,
                "DATA_LOSS",
                f"took {answer.committed_size} of {blob.size} bytes of {blob.hash}",
            )


def _compress(file: BinaryIO) -> Iterator[bytes]:
    """zstd, one frame, in pieces of a message's size at most."""
    import zstandard

    work = zstandard.ZstdCompressor(level=3).compressobj()
    while data := file.read(CHUNK):
        out = work.compress(data)
        for start in range(0, len(out), MESSAGE // 2):
            yield out[start : start + MESSAGE // 2]
    yield work.flush()


def wait_a_little(cancel: threading.Event, attempt: int) -> None:
    """Before a further attempt: 50 ms, and twice as long each time, up to 5 s."""
    cancel.wait(min(5.0, 0.05 * 2**attempt))
