"""Shared libraries with fat binaries, by hand: as nvcc lays them out, without any code."""

from __future__ import annotations

import struct
from collections.abc import Sequence

PTX, ELF = 1, 2
FLAG_A, FLAG_F, FLAG_ZSTD = 1 << 20, 1 << 21, 1 << 15


def cubin(arch: int, *, machine: int = 190) -> bytes:
    """The header of a cubin: enough to say its architecture."""
    head = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7) + struct.pack("<HHI", 2, machine, 1)
    return head.ljust(48, b"\0") + struct.pack("<I", arch << 8 | 2 | 6 << 24) + bytes(12)


def entry(kind: int, arch: int, flags: int = 0, payload: bytes = b"code") -> bytes:
    """One entry of a container."""
    body = payload + bytes(-len(payload) % 8)
    head = struct.pack("<HHIQIIHHI", kind, 0x101, 0x70, len(body), len(payload), 0x40, 8, 1, arch)
    return head.ljust(40, b"\0") + struct.pack("<Q", flags).ljust(0x70 - 40, b"\0") + body


def container(entries: Sequence[bytes]) -> bytes:
    """A fat binary of the entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(section: bytes, name: bytes = b".nv_fatbin") -> bytes:
    """A shared library with one section of that name."""
    strings = b"\0" + name + b"\0.shstrtab\0"
    offset = 64
    table = offset + len(section) + len(strings)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 3, 62, 1, 0, 0, table)
    head += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, 3, 2)
    headers = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, offset, len(section), 0, 0, 8, 0),
        struct.pack(
            "<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, offset + len(section), len(strings), 0, 0, 1, 0
        ),
    ]
    return head + section + strings + b"".join(headers)
