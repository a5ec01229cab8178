"""Decompression of a fat binary's members (core.cubin.fatbin.Inflate).

`--compress-mode=size` and `balance` (and 13's default) give Zstandard frames, `speed` and older
toolkits bare LZ4 blocks.
"""

from __future__ import annotations

_LZ4_RATIO = 256
"""More than LZ4 can gain: one byte of a length stands for 255."""


def inflate(method: str, data: bytes, size: int) -> bytes:
    """The `size` bytes that `data` was compressed from; raises ValueError for anything else.

    A frame that says it holds more than `size` is refused before memory is taken for it.
    """
    if method == "lz4":
        import lz4.block

        if size > _LZ4_RATIO * (len(data) + 1):
            raise ValueError(f"{len(data)} bytes cannot stand for {size}")
        try:
            return bytes(lz4.block.decompress(data, uncompressed_size=size))
        except (lz4.block.LZ4BlockError, OverflowError) as error:
            raise ValueError(str(error)) from error
    if method != "zstd":
        raise ValueError(f"unknown compression {method!r}")
    import zstandard

    try:
        stated = zstandard.get_frame_parameters(data).content_size
        if stated not in (zstandard.CONTENTSIZE_UNKNOWN, size):
            raise ValueError(f"the frame holds {stated} bytes, not {size}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
