"""Compression of layers: gzip by libdeflate, in members of one MiB each.

Cutting lets a layer stream through a fixed amount of memory and use every core, while its bytes
depend on nothing but the content, the level and the library's version (which is pinned).
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

from reprobuild.adapters.oci.streams import Piece
from reprobuild.adapters.oci.workers import Call, Workers
from reprobuild.errors import ReprobuildError

MEMBER = 2**20
"""Uncompressed bytes of each gzip member but the last."""

WAITING = 12
"""Members that wait to be compressed, above two for each thread: so much work is at hand while
their maker goes through small files, or while who takes them writes or waits for the disk. With 24
they were out of the caches before their turn came: 5 % slower on the whole."""

Done = Callable[[Piece], None]


def _ignore(piece: Piece) -> None:
    """For whose pieces are not used again."""


_PROBE_SHA256 = "867739ed0e520655191c30ce37207fc42ecd2ad28dea2e3eab60bea7badfee77"


@cache
def _keep_memory() -> None:
    """Has the C library keep freed memory for what is allocated next, which else goes back to the
    kernel and comes anew with every member: the faults are 2 % of all the processor time.

    glibc keeps as much as twice the largest block, up to 32 MiB, that it had mapped apart and that
    was freed (mallopt(3), the dynamic threshold). This one is never touched; a second one would be,
    since it would not be mapped apart any more. Elsewhere it is without effect.
    """
    bytes(31 * 2**20)


def known_text() -> bytes:
    """What compressors are asked to compress before they are used."""
    words = [hashlib.sha256(b"%d" % n).digest() for n in range(1000)]
    return b"".join(words[n // 3] * (n % 5) for n in range(3000))


@cache
def check_compressor() -> None:
    """Raises E-COMPRESSOR unless the library gives, here, the bytes that are promised."""
    import deflate

    got = hashlib.sha256(deflate.gzip_compress(known_text(), 6)).hexdigest()
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
    """The gzip members for `pieces`, in order. `threads` (0: the machine's) moves no byte.

    Raises E-COMPRESSOR instead of the first one, as `check_compressor`.
    """
    import deflate

    return compressed_members(
        pieces,
        lambda member: deflate.gzip_compress(member, level),
        done,
        check=check_compressor,
        threads=threads,
    )


def compressed_members(
    pieces: Iterable[Piece],
    compress: Callable[[Piece], Piece],
    done: Done = _ignore,
    *,
    check: Callable[[], None],
    threads: int = 0,
) -> Iterator[Piece]:
    """What `compress` makes of each MEMBER bytes of `pieces`, in order, on several cores.

    `done` is told of each member, in order, when it is compressed and not read any more. Nothing
    comes out unless `check` returns, which is called beside the rest.
    """
    count = threads or min(8, len(os.sched_getaffinity(0)))
    pending: deque[tuple[Piece, Call[Piece]]] = deque()

    def first() -> Piece:
        member, call = pending.popleft()
        compressed = call.result()
        done(member)
        return compressed

    _keep_memory()
    with Workers(count, "compress") as workers:
        checked: Call[None] | None = workers.do(check)
        for member in members(pieces):
            pending.append((member, workers.do(partial(compress, member))))
            if len(pending) < 2 * count + WAITING:
                continue
            if checked is not None:
                checked.result()
                checked = None
            yield first()
        if checked is not None:
            checked.result()
        while pending:
            yield first()
