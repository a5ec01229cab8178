"""The kernels of one cubin, and what each takes of the machine.

A kernel is a function symbol whose `st_other` has the bit 0x10; its code is the section
`.text.NAME`. Registers and stack are in `.nv.info`, barriers and launch bounds in `.nv.info.NAME`,
static shared memory is the size of `.nv.shared.NAME`. Meanings were compared with
`cuobjdump -res-usage` and `nvdisasm` (slow tests).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reprobuild.core.cubin import info
from reprobuild.core.cubin.elf import (
    EM_CUDA,
    SHT_REL,
    SHT_RELA,
    SHT_SYMTAB,
    STT_FUNC,
    Elf,
    Section,
    Symbol,
    malformed,
    parse,
)
from reprobuild.core.digest import Digest, tagged

_ENTRY = 0x10
_STL, _LDL = 0x387, 0x983
"""Opcodes (the low 12 bits of a 16-byte instruction) that write and read local memory, sm_70 on."""
CODE_DOMAIN = "reprobuild/kernel-code/v0"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel for one architecture.

    `name` is mangled, as in the symbol table. `registers` per thread; `stack` bytes per thread,
    for spilled registers and local arrays; `local_stores` and `local_loads` the instructions that
    use it (both are 0 where nothing is spilled); `shared` bytes of static shared memory as the
    driver counts it (from sm_90 on with the 1,024 bytes that are reserved); `constant` bytes of
    the parameter bank; `barriers`; `code_size` in bytes. `max_threads` and `required_threads` are
    the launch bounds, where stated. `code` is the digest of instructions and relocations, so equal
    digests mean equal machine code. `copies`: in how many members of the module it is.
    """

    name: str
    arch: str
    registers: int
    stack: int
    local_stores: int
    local_loads: int
    shared: int
    constant: int
    barriers: int
    code_size: int
    code: Digest
    max_threads: tuple[int, ...] = ()
    required_threads: tuple[int, ...] = ()
    copies: int = 1

    @property
    def spills(self) -> int:
        """Instructions that use local memory."""
        return self.local_stores + self.local_loads


def cubin_arch(elf: Elf) -> str:
    """The architecture that a cubin says of itself; raises E-CUBIN when it is none.

    Bits 8 to 15 of the flags are the number (in older files, whose ABI is below 8, the low byte).
    The `a` is in `.nv.compat`; the `f` only in what ptxas notes of its own command line.
    """
    if elf.machine != EM_CUDA:
        raise malformed("not a cubin")
    number = (elf.flags >> 8) & 0xFF if elf.abi_version >= 8 else elf.flags & 0xFF
    compat = elf.named(b".nv.compat")
    if compat is not None:
        for attribute in info.attributes(elf.content(compat)):
            if attribute.code == info.COMPAT_ACCELERATOR and attribute.value:
                return f"sm_{number}a"
    note = elf.named(b".note.nv.tkinfo")
    text = bytes(elf.content(note)) if note is not None else b""
    found = re.search(rb"-arch[ =]sm_(\d+)([af])\b", text)
    if found is not None and int(found[1]) == number:
        return f"sm_{number}{found[2].decode()}"
    return f"sm_{number}"


def kernels(cubin: bytes | memoryview | Elf, arch: str = "") -> Iterator[Kernel]:
    """The kernels of a cubin, in the order of its symbols.

    `arch` is what the fat binary's header says, where there is one: it alone tells the `f`.
    Raises E-CUBIN for what cannot be read or contradicts `arch`.
    """
    elf = cubin if isinstance(cubin, Elf) else parse(cubin)
    own = cubin_arch(elf)
    if arch and own.rstrip("af") != arch.rstrip("af"):
        raise malformed(f"a cubin is for {own}, but its header says {arch}")
    table = next((s for s in elf.sections if s.kind == SHT_SYMTAB), None)
    if table is None:
        return
    reader = _Reader(elf, table)
    for symbol in elf.symbols(table):
        if symbol.kind == STT_FUNC and symbol.other & _ENTRY and symbol.section:
            if symbol.section >= len(elf.sections):
                raise malformed("a kernel lies in a section that is not there")
            yield reader.kernel(symbol, elf.sections[symbol.section], arch or own)


class _Reader:
    """What is looked up once for a whole cubin."""

    def __init__(self, elf: Elf, table: Section) -> None:
        self.elf, self.table = elf, table
        self.sections = {section.name: section for section in reversed(elf.sections)}
        general = self._content(b".nv.info")
        self.registers = info.by_symbol(general, info.REGCOUNT)
        self.frames = info.by_symbol(general, info.FRAME_SIZE)
        self.stacks = info.by_symbol(general, info.MIN_STACK_SIZE)
        self.relocated = {
            s.info: s for s in elf.sections if s.kind in (SHT_RELA, SHT_REL) and s.size
        }
        self._names: list[bytes] | None = None

    def _content(self, name: bytes) -> memoryview:
        section = self.sections.get(name)
        return self.elf.data[:0] if section is None else self.elf.content(section)

    def _size(self, name: bytes) -> int:
        section = self.sections.get(name)
        return 0 if section is None else section.size

    def kernel(self, symbol: Symbol, section: Section, arch: str) -> Kernel:
        code = bytes(self.elf.content(section))
        barriers = (section.flags >> 20) & 0x7F
        most: tuple[int, ...] = ()
        required: tuple[int, ...] = ()
        for attribute in info.attributes(self._content(b".nv.info." + symbol.name)):
            if attribute.code == info.NUM_BARRIERS:
                barriers = attribute.value
            elif attribute.code == info.MAX_THREADS:
                most = attribute.words()
            elif attribute.code == info.REQNTID:
                required = attribute.words()
        stores, loads = local_accesses(code)
        return Kernel(
            name=symbol.name.decode("utf-8", "backslashreplace"),
            arch=arch,
            registers=self.registers.get(symbol.index, section.info >> 24),
            stack=max(self.frames.get(symbol.index, 0), self.stacks.get(symbol.index, 0)),
            local_stores=stores,
            local_loads=loads,
            shared=self._size(b".nv.shared." + symbol.name),
            constant=self._size(b".nv.constant0." + symbol.name),
            barriers=barriers,
            code_size=section.size,
            code=self._digest(code, section),
            max_threads=most[:3],
            required_threads=required[:3],
        )

    def _digest(self, code: bytes, section: Section) -> Digest:
        parts = [len(code).to_bytes(8, "little"), code]
        table = self.relocated.get(section.index)
        if table is not None:
            names = self.names()
            for row in self.elf.relocations(table):
                name = names[row.symbol] if row.symbol < len(names) else b"?"
                text = f"{row.offset:x} {row.kind:x} {row.addend:x} {len(name)} "
                parts += (text.encode(), name)
        return tagged(CODE_DOMAIN, b"".join(parts))

    def names(self) -> Sequence[bytes]:
        """The symbols' names by index; a section's symbol stands for the section."""
        if self._names is None:
            sections = self.elf.sections
            self._names = [
                s.name or (sections[s.section].name if s.section < len(sections) else b"")
                for s in self.elf.symbols(self.table)
            ]
        return self._names


def local_accesses(code: bytes) -> tuple[int, int]:
    """(stores, loads) among instructions of 16 bytes: the low byte, and 4 bits of the next."""
    stores = loads = 0
    low = code[0::16]
    at = -1
    high = code[1::16]
    for byte in (_STL & 0xFF, _LDL & 0xFF):
        at = low.find(byte)
        while at >= 0:
            opcode = low[at] | (high[at] & 15) << 8
            stores += opcode == _STL
            loads += opcode == _LDL
            at = low.find(byte, at + 1)
    return stores, loads
