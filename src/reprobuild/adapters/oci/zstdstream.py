"""Compression of layers on request: zstd frames of one MiB of content each, by libzstd at level 9.

As with gzip (gzipstream.py), cutting makes the bytes a function of content, level and the library's
version, which is pinned. Docker 20.10 and umoci 0.4.7 take no such layers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache

from reprobuild.adapters.oci.gzipstream import Done, _ignore, compressed_members, known_text
from reprobuild.adapters.oci.streams import Piece
from reprobuild.errors import ReprobuildError

LEVEL = 9
_PROBE_SHA256 = "f542cfbbe46d0e068a232345c0daab83053103f24f966d82be86ea36bbcf8659"


def _compress(member: Piece) -> bytes:
    import zstandard

    # Its own compressor each time: one object must not be used by two threads at once.
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    return compressor.compress(member)


@cache
def check_zstd() -> None:
    """Raises E-COMPRESSOR unless the library gives, here, the bytes that are promised."""
    got = hashlib.sha256(_compress(known_text())).hexdigest()
    if got != _PROBE_SHA256:
        import zstandard

        raise ReprobuildError(
            "E-COMPRESSOR",
            f"zstandard {zstandard.__version__} compresses to other bytes than the pinned version",
            expected=_PROBE_SHA256,
            got=got,
        )


def zstd_stream(
    pieces: Iterable[Piece], done: Done = _ignore, *, threads: int = 0
) -> Iterator[Piece]:
    """The zstd frames for `pieces`, in order. `threads` (0: the machine's) moves no byte.

    Raises E-COMPRESSOR instead of the first one, as `check_zstd`.
    """
    return compressed_members(pieces, _compress, done, check=check_zstd, threads=threads)
