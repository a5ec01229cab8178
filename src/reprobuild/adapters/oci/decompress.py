"""A layer's blob as its uncompressed bytes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from reprobuild.errors import ReprobuildError

CHUNK = 2**20


def uncompressed(source: BinaryIO, label: str) -> Iterator[bytes]:
    """The tar inside a layer's blob (gzip, zstd or plain), in pieces; `label` names it in errors.

    Raises E-IMAGE for a damaged stream. `source` must be able to seek.
    """
    magic = source.read(4)
    source.seek(0)
    stream: BinaryIO = source
    damage: tuple[type[Exception], ...] = (zlib.error, EOFError, gzip.BadGzipFile)
    if magic.startswith(b"\x1f\x8b"):
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=source))
    elif magic == b"\x28\xb5\x2f\xfd":
        import zstandard

        decompressor = zstandard.ZstdDecompressor(max_window_size=2**27)
        stream = cast(BinaryIO, decompressor.stream_reader(source, read_across_frames=True))
        damage = (*damage, zstandard.ZstdError)
    try:
        while chunk := stream.read(CHUNK):
            yield chunk
    except damage as error:
        raise ReprobuildError("E-IMAGE", f"{label} cannot be read: {error}") from error
