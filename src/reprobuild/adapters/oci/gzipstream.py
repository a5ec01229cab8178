"""Compression of layers: gzip by libdeflate, in members of one MiB each.

Cutting lets a layer stream through a fixed amount of memory and use every core, while its bytes
depend on nothing but the content, the level and the library's version (which is pinned).
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from reprobuild.adapters.oci.streams import Piece
from reprobuild.errors import ReprobuildError

MEMBER = 2**20
"""Uncompressed bytes of each gzip member but the last."""

Done = Callable[[Piece], None]


def _ignore(piece: Piece) -> None:
    """For whose pieces are not used again."""


WAITING = 24
"""Members that wait to be compressed, above two for each thread: so much work is at hand while
their maker goes through small files, or who takes them writes or waits for the disk."""

_WORDS = [hashlib.sha256(b"%d" % n).digest() for n in range(1000)]
_PROBE = b"".join(_WORDS[n // 3] * (n % 5) for n in range(3000))
_PROBE_SHA256 = "867739ed0e520655191c30ce37207fc42ecd2ad28dea2e3eab60bea7badfee77"


def check_compressor() -> None:
    """Raises E-COMPRESSOR unless the library gives, here, the bytes that are promised."""
    import deflate

    got = hashlib.sha256(deflate.gzip_compress(_PROBE, 6)).hexdigest()
    if got != _PROBE_SHA256:
        raise ReprobuildError(
            "E-COMPRESSOR",
            f"deflate {deflate.__version__} compresses to other bytes than the pinned version",
            expected=_PROBE_SHA256,
            got=got,
        )


def members(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The stream of `pieces` cut anew into MEMBER bytes each; an empty stream gives nothing."""
    buffer = bytearray()
    for piece in pieces:
        if not buffer and len(piece) == MEMBER:
            yield piece
            continue
        buffer += piece
        while len(buffer) >= MEMBER:
            yield bytes(buffer[:MEMBER])
            del buffer[:MEMBER]
    if buffer:
        yield bytes(buffer)


def gzip_stream(
    pieces: Iterable[Piece], level: int, done: Done = _ignore, *, threads: int = 0
) -> Iterator[Piece]:
    """The gzip members for `pieces`, in order. `threads` (0: the machine's) moves no byte."""
    import deflate

    return compressed_members(
        pieces, lambda member: deflate.gzip_compress(member, level), done, threads=threads
    )


def compressed_members(
    pieces: Iterable[Piece],
    compress: Callable[[Piece], Piece],
    done: Done = _ignore,
    *,
    threads: int = 0,
) -> Iterator[Piece]:
    """What `compress` makes of each MEMBER bytes of `pieces`, in order, on several cores.

    `done` is told of each member, in order, when it is compressed and not read any more.
    """
    count = threads or min(8, len(os.sched_getaffinity(0)))
    pending: deque[tuple[Piece, Future[Piece]]] = deque()
    pool = ThreadPoolExecutor(count, thread_name_prefix="compress")

    def first() -> Piece:
        member, future = pending.popleft()
        compressed = future.result()
        done(member)
        return compressed

    try:
        for member in members(pieces):
            pending.append((member, pool.submit(compress, member)))
            if len(pending) >= 2 * count + WAITING:
                yield first()
        while pending:
            yield first()
    finally:
        pool.shutdown(cancel_futures=True)
