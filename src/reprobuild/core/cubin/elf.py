"""64-bit little-endian ELF files: sections, symbols, relocations.

Layout: System V ABI, chapters 4 and 5; both the host's objects and libraries and the cubins in
them have it. Input may be hostile: every offset is checked, and the work and memory that a file
can cause is bounded by a small multiple of its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from reprobuild.errors import ReprobuildError

MAGIC = b"\x7fELF\x02\x01"
EM_X86_64, EM_CUDA, EM_AARCH64 = 62, 190, 183
ET_REL, ET_EXEC, ET_DYN = 1, 2, 3

SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = 2, 3, 4, 7, 8, 9, 11
SHT_SYMTAB_SHNDX = 18
SHF_ALLOC, SHF_EXECINSTR = 2, 4
SHN_XINDEX = 0xFFFF
SHN_RESERVED = 0xFF00

STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE = 1, 2, 3, 4

MAX_TABLE = 4_000_000
"""Rows of one symbol or relocation table that are read at most."""


def malformed(message: str) -> ReprobuildError:
    """The error of this package: E-CUBIN, with what is off."""
    return ReprobuildError("E-CUBIN", message)


@dataclass(frozen=True, slots=True)
class Section:
    """One row of the section table; sizes and offsets in bytes."""

    index: int
    name: bytes
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """One row of a symbol table; `section` is a section's index, or a reserved number."""

    index: int
    name: bytes
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def kind(self) -> int:
        """STT_…"""
        return self.info & 15


@dataclass(frozen=True, slots=True)
class Relocation:
    """One row of a relocation table, the symbol by its index."""

    offset: int
    kind: int
    symbol: int
    addend: int


class _Strings:
    """A string table. The total of what is read is bounded, so that one long string without an
    end, named by a million rows, costs no more than the table a few times over."""

    def __init__(self, table: bytes) -> None:
        self._table = table
        self._budget = 16 * len(table) + 2**16
        self._known: dict[int, bytes] = {}

    def at(self, offset: int) -> bytes:
        found = self._known.get(offset)
        if found is None:
            if offset >= len(self._table):
                if offset == 0:
                    return b""
                raise malformed("a name lies outside its string table")
            end = self._table.find(b"\0", offset)
            if end < 0:
                raise malformed("a name has no end")
            self._budget -= end - offset
            if self._budget < 0:
                raise malformed("names overlap each other more than any tool would have them")
            found = self._known[offset] = self._table[offset:end]
        return found


@dataclass(slots=True)
class Elf:
    """A file's header and section table; contents are cut out of `data` on demand."""

    data: memoryview
    kind: int
    machine: int
    abi: int
    abi_version: int
    flags: int
    sections: tuple[Section, ...]
    _strings: dict[int, _Strings] = field(default_factory=dict)

    def content(self, section: Section) -> memoryview:
        """A section's bytes; none for one that takes no room in the file."""
        if section.kind == SHT_NOBITS:
            return self.data[:0]
        return self.data[section.offset : section.offset + section.size]

    def named(self, name: bytes) -> Section | None:
        """The first section of that name."""
        return next((s for s in self.sections if s.name == name), None)

    def strings(self, index: int) -> _Strings:
        """The string table in section `index`."""
        if index not in self._strings:
            if not 0 <= index < len(self.sections):
                raise malformed(f"there is no section {index} to take names from")
            self._strings[index] = _Strings(bytes(self.content(self.sections[index])))
        return self._strings[index]

    def symbols(self, table: Section) -> Iterator[Symbol]:
        """The rows of a symbol table, in order, one after another."""
        strings = self.strings(table.link)
        content = _rows(self.content(table), 24, table)
        extended = self._extended(table)
        for index, row in enumerate(struct.iter_unpack("<IBBHQQ", content)):
            name, info, other, section, value, size = row
            if section == SHN_XINDEX and index < len(extended):
                section = extended[index]
            yield Symbol(index, strings.at(name), info, other, section, value, size)

    def _extended(self, table: Section) -> memoryview:
        """Section numbers too large for a symbol's own field."""
        for section in self.sections:
            if section.kind == SHT_SYMTAB_SHNDX and section.link == table.index:
                return _rows(self.content(section), 4, section).cast("I")
        return memoryview(b"").cast("I")

    def relocations(self, table: Section) -> Iterator[Relocation]:
        """The rows of a relocation table (either kind), in order."""
        if table.kind == SHT_REL:
            for offset, info in struct.iter_unpack("<QQ", _rows(self.content(table), 16, table)):
                yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, 0)
        else:
            for offset, info, addend in struct.iter_unpack(
                "<QQq", _rows(self.content(table), 24, table)
            ):
                yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)


def _rows(content: memoryview, size: int, table: Section) -> memoryview:
    count = len(content) // size
    if count > MAX_TABLE:
        raise malformed(f"the table {shown(table.name)} has {count} rows")
    return content[: count * size]


def shown(name: bytes, limit: int = 200) -> str:
    """A name for people: whatever it holds, one line of printable text, not too long."""
    text = name[:limit].decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def is_elf(head: bytes) -> bool:
    """Whether a file beginning so is of the kind that `parse` reads."""
    return head[:6] == MAGIC


def parse(data: bytes | memoryview) -> Elf:
    """The sections of an ELF file; raises E-CUBIN for one that contradicts itself."""
    view = memoryview(data)
    if len(view) < 64 or view[:6] != MAGIC:
        raise malformed("not a 64-bit little-endian ELF file")
    kind, machine = struct.unpack_from("<HH", view, 16)
    (table,) = struct.unpack_from("<Q", view, 40)
    (flags,) = struct.unpack_from("<I", view, 48)
    size, count, names = struct.unpack_from("<HHH", view, 58)
    elf = Elf(view, kind, machine, view[7], view[8], flags, ())
    if table == 0:
        return elf
    if size != 64 or table + 64 > len(view):
        raise malformed("the section table lies outside the file")
    first = struct.unpack_from("<IIQQQQIIQQ", view, table)
    count = count or first[5]
    names = first[6] if names == SHN_XINDEX else names
    if table + 64 * count > len(view):
        raise malformed("the section table lies outside the file")
    rows = list(struct.iter_unpack("<IIQQQQIIQQ", view[table : table + 64 * count]))
    if not rows or names == 0:
        return elf
    if names >= len(rows):
        raise malformed("the table of section names is missing")
    _, _, _, _, offset, length, *_ = rows[names]
    strings = _Strings(bytes(view[offset : offset + length]))
    sections = []
    for index, row in enumerate(rows):
        name, sort, bits, address, offset, length, link, info, _, entry = row
        if sort not in (SHT_NOBITS, 0) and offset + length > len(view):
            raise malformed(f"section {index} lies outside the file")
        sections.append(
            Section(index, strings.at(name), sort, bits, address, offset, length, link, info, entry)
        )
    elf.sections = tuple(sections)
    return elf
