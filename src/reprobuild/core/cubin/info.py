"""The attributes that ptxas writes beside a kernel: `.nv.info`, `.nv.info.KERNEL`, `.nv.compat`.

A sequence of attributes; numbers and meanings are those that cuobjdump -elf shows.

    attribute = format u8, code u8, and
                format 1: two unused bytes        format 2: value u8, one unused byte
                format 3: value u16               format 4: size u16, that many bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from reprobuild.core.cubin.elf import malformed

MAX_THREADS, REQNTID, FRAME_SIZE, MIN_STACK_SIZE = 0x05, 0x10, 0x11, 0x12
REGCOUNT, NUM_BARRIERS = 0x2F, 0x4C
COMPAT_ACCELERATOR = 0x09


@dataclass(frozen=True, slots=True)
class Attribute:
    """`value` of formats 2 and 3; `data` of format 4."""

    code: int
    value: int
    data: memoryview

    def words(self) -> tuple[int, ...]:
        """The data as 32-bit numbers."""
        count = len(self.data) // 4
        return struct.unpack(f"<{count}I", self.data[: 4 * count])


def attributes(section: memoryview) -> Iterator[Attribute]:
    """All attributes in order; raises E-CUBIN where the section is cut short."""
    at, end = 0, len(section)
    while at + 4 <= end:
        form, code = section[at], section[at + 1]
        (value,) = struct.unpack_from("<H", section, at + 2)
        data = section[:0]
        at += 4
        if form == 4:
            if at + value > end:
                raise malformed("an attribute is cut short")
            data = section[at : at + value]
            at += value
        elif form == 2:
            value &= 0xFF
        elif form not in (1, 3):
            raise malformed(f"an attribute has the unknown format {form}")
        yield Attribute(code, value, data)


def by_symbol(section: memoryview, code: int) -> dict[int, int]:
    """Of the attributes `code` that give each a symbol a number: symbol's index → number."""
    found = {}
    for attribute in attributes(section):
        words = attribute.words() if attribute.code == code else ()
        if len(words) >= 2:
            found[words[0]] = words[1]
    return found
