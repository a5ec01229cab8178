"""An ELF file as parts that can be compared with another's: by section, names in one form.

Tables of symbols and relocations are compared by what they say, not by the numbers that stand for
names, which move with every string that is longer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reprobuild.core.cubin.elf import (
    EM_CUDA,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHT_DYNSYM,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_REL,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    STT_FILE,
    STT_SECTION,
    Elf,
    Section,
    Symbol,
    shown,
)
from reprobuild.core.cubin.names import Level, normal, unit_file

_MERC_RELA, _MERC_SYMTAB = 0x70000082, 0x70000085
_PC_RELATIVE = (2, 4)
"""R_X86_64_PC32 and PLT32, whose addend is 4 less than the offset that is meant."""


MAX_NAME = 2**16


class Sort(StrEnum):
    """What a section is for."""

    CODE = "code"
    DATA = "data"
    DEBUG = "debug information"
    ATTRIBUTES = "attributes"
    NOTE = "note"
    TOOL = "compiler's note"
    NAMES = "names"
    DEVICE = "fat binary"


@dataclass(frozen=True, slots=True)
class Part:
    """One section: what it is for, its content in a form for comparison, and what it is called."""

    sort: Sort
    value: bytes
    name: str


Parts = Mapping[tuple[bytes, int], Part]
"""All parts of a file by (name in one form, how many of that name came before)."""


_HOST = (
    (rb"\.nv_fatbin|__nv_relfatbin|\.nvFatBinSegment", Sort.DEVICE),
    (rb"\.debug_|\.gdb_index|\.stab", Sort.DEBUG),
    (rb"\.note|\.comment|__nv_module_id|\.gnu_debuglink", Sort.NOTE),
)
_DEVICE = (
    (rb"\.note\.nv\.tkinfo", Sort.TOOL),
    (rb"(\.nv\.merc)?\.(?!debug_frame)((nv_)?debug_|line)", Sort.DEBUG),
    (rb"\.text\.|\.nv\.capmerc\.", Sort.CODE),
    (rb"(\.nv\.merc)?\.nv\.(constant|global|shared|local|texref|surfref|rel\.action)", Sort.DATA),
)


def _sort(elf: Elf, section: Section) -> Sort:
    if section.kind in (SHT_SYMTAB, SHT_DYNSYM, SHT_STRTAB, _MERC_SYMTAB):
        return Sort.NAMES
    device = elf.machine == EM_CUDA
    name = section.name
    if section.kind in (SHT_RELA, SHT_REL, _MERC_RELA):
        name = re.sub(rb"\A(\.nv\.merc)?\.rela?(?=\.)", b"", name)
    for pattern, sort in _DEVICE if device else _HOST:
        if re.match(pattern, name):
            return sort
    if device:
        return Sort.ATTRIBUTES
    if section.kind == SHT_NOTE:
        return Sort.NOTE
    target = _target(elf, section)
    if target.flags & SHF_EXECINSTR:
        return Sort.CODE
    return Sort.DATA if target.flags & SHF_ALLOC else Sort.NOTE


def _target(elf: Elf, section: Section) -> Section:
    """What a table of relocations is about, else the section itself."""
    related = section.kind in (SHT_RELA, SHT_REL) and 0 < section.info < len(elf.sections)
    return elf.sections[section.info] if related else section


def describe(elf: Elf, level: Level) -> Parts:
    """The parts of a file, with made-up names in one form as far as `level` says.

    Raises E-CUBIN for damage.
    """
    parts: dict[tuple[bytes, int], Part] = {}
    seen: dict[bytes, int] = {}
    writer = _Writer(elf, level)
    for section in elf.sections[1:]:
        if section.kind == SHT_STRTAB:
            continue  # said by the tables that use it
        name = normal(section.name, level)
        count = seen.get(name, 0)
        seen[name] = count + 1
        sort = _sort(elf, section)
        parts[name, count] = Part(sort, writer.value(section, sort), shown(section.name, MAX_NAME))
    return parts


class _Writer:
    def __init__(self, elf: Elf, level: Level) -> None:
        self.elf, self.level = elf, level
        self._tables: dict[int, list[Symbol]] = {}

    def value(self, section: Section, sort: Sort) -> bytes:
        if section.kind in (SHT_SYMTAB, SHT_DYNSYM, _MERC_SYMTAB):
            rows = [self._symbol(s) for s in self._symbols(section)]
            return b"\n".join(sorted(rows))
        if section.kind in (SHT_RELA, SHT_REL, _MERC_RELA):
            return b"\n".join(sorted(self._relocations(section)))
        head = b"%x %x\n" % (section.kind, section.flags)
        if section.kind == SHT_NOBITS:
            return head + b"%x" % section.size
        content = bytes(self.elf.content(section))
        if sort in (Sort.CODE, Sort.DEVICE):
            return head + content
        return head + normal(content, self.level)

    def _symbols(self, table: Section) -> list[Symbol]:
        if table.index not in self._tables:
            self._tables[table.index] = list(self.elf.symbols(table))
        return self._tables[table.index]

    def _section_name(self, index: int) -> bytes:
        sections = self.elf.sections
        name = sections[index].name if index < len(sections) else b"#%x" % index
        return normal(name, self.level)

    def _symbol(self, symbol: Symbol) -> bytes:
        name = symbol.name
        if symbol.kind == STT_FILE and self.level >= Level.TEMPORARY:
            name = unit_file(normal(name, self.level))
        where = self._section_name(symbol.section)
        figures = b"%x %x %x %x" % (symbol.info, symbol.other, symbol.value, symbol.size)
        return normal(name, self.level) + b"\0" + where + b"\0" + figures

    def _relocations(self, section: Section) -> list[bytes]:
        tables = self.elf.sections
        if not 0 <= section.link < len(tables):
            return []
        symbols = self._symbols(tables[section.link])
        rows = []
        for row in self.elf.relocations(section):
            if row.symbol >= len(symbols):
                rows.append(b"%x %x ? %x" % (row.offset, row.kind, row.addend))
                continue
            symbol, addend = symbols[row.symbol], b"%x" % row.addend
            name = normal(symbol.name, self.level)
            if symbol.kind == STT_SECTION:
                name = self._section_name(symbol.section)
                if self.level >= Level.TEMPORARY:
                    addend = self._text(symbol.section, row.kind, row.addend) or addend
            rows.append(b"%x %x %s %s" % (row.offset, row.kind, name, addend))
        return rows

    def _text(self, index: int, kind: int, addend: int) -> bytes:
        """The string that is meant by a place in read-only data: where it lies moves with the
        lengths of those before it."""
        if index >= len(self.elf.sections) or self.elf.machine == EM_CUDA:
            return b""
        section = self.elf.sections[index]
        if not section.name.startswith(b".rodata"):
            return b""
        at = addend + (4 if kind in _PC_RELATIVE else 0)
        data = bytes(self.elf.content(section)[at : at + 4096]) if at >= 0 else b""
        text, end, _ = data.partition(b"\0")
        if not end or not text.isascii():
            return b""
        return b'"' + normal(text, self.level) + b'"'
