"""Fat binaries: containers of machine code, PTX and intermediate code for several architectures.

The layout is not published. What stands here was read off files of CUDA 12 and 13, and is checked
against cuobjdump by the slow tests. All numbers are little-endian.

    container = magic u32 0xBA55ED50, version u16 1, header size u16, payload size u64, entry*
    entry     = kind u16            1 PTX, 2 cubin (an ELF file), 8 NVVM IR (for link-time code)
                version u16
                header size u32
                payload size u64    with padding to 8 bytes
        at 16   stored size u32     without it; 0 where the payload is not compressed
        at 28   architecture u32    120 of sm_120a
        at 40   flags u64           bit 13 LZ4, bit 15 Zstandard, bit 20 the `a` and bit 21 the `f`
                                    of sm_120a and sm_120f
        at 56   full size u64       after decompression; 0 where it is not compressed

A linked library holds the containers of its objects one after another, padded with zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reprobuild.core.cubin.elf import malformed

MAGIC = 0xBA55ED50
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
PTX, CUBIN, NVVM = 1, 2, 8
_KINDS = {PTX: "ptx", CUBIN: "cubin", NVVM: "nvvm"}
_LZ4, _ZSTD, _A, _F = 1 << 13, 1 << 15, 1 << 20, 1 << 21

MAX_PAYLOAD = 2**29
"""Bytes that one entry may take when decompressed."""
MAX_TOTAL = 2**33
"""Bytes that all entries of one file may take when decompressed."""

Inflate = Callable[[str, bytes, int], bytes]
"""(`lz4` or `zstd`, the compressed bytes, the full size) → exactly that many bytes.

Raises ValueError for damage, and never holds more than the full size and a fixed window.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a fat binary. `stored` is the payload as it lies there, without padding."""

    kind: str
    arch: str
    compression: str
    """`lz4`, `zstd`, or empty."""
    stored: memoryview
    size: int
    """Bytes when decompressed."""
    header: bytes
    container: int
    """Which container of the file it is in: one for each object linked."""

    def payload(self, inflate: Inflate) -> bytes:
        """The member itself; raises E-CUBIN when it cannot be decompressed."""
        if not self.compression:
            return bytes(self.stored)
        try:
            data = inflate(self.compression, bytes(self.stored), self.size)
        except ValueError as error:
            raise malformed(f"a {self.kind} for {self.arch} cannot be decompressed: {error}") from (
                error
            )
        if len(data) != self.size:
            raise malformed(f"a {self.kind} for {self.arch} is {len(data)} bytes, not {self.size}")
        return data


def arch_name(number: int, flags: int = 0) -> str:
    """`sm_120a` from the fields of a header."""
    return f"sm_{number}{'a' if flags & _A else 'f' if flags & _F else ''}"


def entries(section: memoryview) -> Iterator[Entry]:
    """Every member of a section (or file) of containers, in order.

    Raises E-CUBIN when something is cut short, contradicts itself, or would decompress to more
    than `MAX_PAYLOAD` bytes alone or `MAX_TOTAL` together.
    """
    at, container, total = 0, 0, 0
    while at < len(section):
        at = _next(section, at)
        if at >= len(section):
            return
        if at + 16 > len(section):
            raise malformed("a fat binary is cut short")
        magic, _, header, payload = struct.unpack_from("<IHHQ", section, at)
        if magic != MAGIC:
            raise malformed(f"there is no fat binary at byte {at}, where one should begin")
        end = at + header + payload
        if header < 16 or end > len(section):
            raise malformed("a fat binary is cut short")
        at += header
        while at < end:
            entry, at = _entry(section, at, end, container)
            total += entry.size
            if total > MAX_TOTAL:
                raise malformed("the members together are too large when decompressed")
            yield entry
        container += 1


def _next(section: memoryview, at: int) -> int:
    """Where the padding ends: the multiple of 8 before the next byte that is not zero."""
    while at < len(section):
        chunk = bytes(section[at : at + 4096])
        rest = chunk.lstrip(b"\0")
        if rest:
            return at + (len(chunk) - len(rest)) // 8 * 8
        at += len(chunk)
    return at


def _entry(section: memoryview, at: int, end: int, container: int) -> tuple[Entry, int]:
    if at + 64 > end:
        raise malformed("a member's header is cut short")
    kind, _, header, padded, stored = struct.unpack_from("<HHIQI", section, at)
    (arch,) = struct.unpack_from("<I", section, at + 28)
    (flags,) = struct.unpack_from("<Q", section, at + 40)
    (full,) = struct.unpack_from("<Q", section, at + 56)
    body = at + header
    if header < 64 or body + padded > end:
        raise malformed("a member is cut short")
    compression = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else ""
    if not compression:
        stored, full = padded, padded
    elif stored > padded:
        raise malformed("a member is cut short")
    if full > MAX_PAYLOAD:
        raise malformed(f"a member would take {full} bytes when decompressed")
    entry = Entry(
        _KINDS.get(kind, f"kind-{kind}"),
        arch_name(arch, flags),
        compression,
        section[body : body + stored],
        full,
        bytes(section[at:body]),
        container,
    )
    return entry, body + padded
