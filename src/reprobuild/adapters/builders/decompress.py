"""Packed streams by their first bytes: gzip, xz, bzip2, zstd, or plain."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from typing import BinaryIO, cast

CHUNK = 2**20
WINDOW = 2**27
"""The most memory, in bytes, that a zstd frame may ask for."""

DAMAGE: tuple[type[Exception], ...] = (zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile)
"""What reading a damaged stream raises; zstd's and bzip2's own errors come as EOFError."""


class _Zstd:
    """A zstd reader whose errors are this module's, so that the library stays in here."""

    def __init__(self, source: BinaryIO) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        self._reader = decompressor.stream_reader(source, read_across_frames=True)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._reader.read(size)
        except self._error as error:
            raise EOFError(f"zstd: {error}") from error


class _Bzip2:
    """A bzip2 reader; the library reports damage as OSError, as if the disk had failed."""

    def __init__(self, source: BinaryIO) -> None:
        self._reader = bz2.BZ2File(source)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._reader.read(size)
        except OSError as error:
            if error.errno is not None:
                raise
            raise EOFError(f"bzip2: {error}") from error


def decompressed(source: BinaryIO, magic: bytes) -> BinaryIO:
    """The stream inside `source`, whose first bytes are `magic` (but still unread)."""
    if magic.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=source))
    if magic.startswith(b"\xfd7zXZ\0"):
        return cast(BinaryIO, lzma.LZMAFile(source, format=lzma.FORMAT_XZ))
    if magic.startswith(b"BZh"):
        return cast(BinaryIO, _Bzip2(source))
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return cast(BinaryIO, _Zstd(source))
    return source
