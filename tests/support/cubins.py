"""ELF files, cubins and fat binaries by hand, laid out as ptxas and nvcc lay them out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import lz4.block
import zstandard

PROGBITS, SYMTAB, STRTAB, RELA, NOTE, NOBITS, DYNSYM = 1, 2, 3, 4, 7, 8, 11
CUDA_INFO = 0x70000000
CUDA, X86_64 = 190, 62
FUNC, OBJECT, SECTION, FILE = 2, 1, 3, 4
ENTRY = 0x10
FLAG_A, FLAG_F, LZ4, ZSTD = 1 << 20, 1 << 21, 1 << 13, 1 << 15


@dataclass
class Section:
    """A section to be written; `size` only for one without content."""

    name: str
    content: bytes = b""
    kind: int = PROGBITS
    flags: int = 2
    link: int = 0
    info: int = 0
    size: int | None = None


@dataclass
class Symbol:
    """A symbol to be written; `section` by name, empty for none."""

    name: str
    section: str = ""
    kind: int = FUNC
    other: int = 0
    value: int = 0
    size: int = 0
    bind: int = 1


@dataclass
class ElfFile:
    """Sections and symbols, and the bytes that they make."""

    machine: int = X86_64
    kind: int = 1
    flags: int = 0
    abi: tuple[int, int] = (0, 0)
    sections: list[Section] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    relocations: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)
    """Section → (offset, kind, symbol's name, addend)."""

    def add(self, name: str, content: bytes = b"", **options: int) -> Section:
        """Adds a section."""
        section = Section(name, content, **options)
        self.sections.append(section)
        return section

    def data(self) -> bytes:
        """The file."""
        sections = [*self.sections]
        numbers = {s.name: n for n, s in enumerate(sections, 1)}
        strings = _Strings()
        rows = bytearray(24)
        order = {"": 0}
        for symbol in self.symbols:
            order[symbol.name] = len(rows) // 24
            rows += struct.pack(
                "<IBBHQQ",
                strings.add(symbol.name),
                symbol.bind << 4 | symbol.kind,
                symbol.other,
                numbers.get(symbol.section, 0xFFF1 if symbol.kind == FILE else 0),
                symbol.value,
                symbol.size,
            )
        table, names = len(sections) + 1, len(sections) + 2
        sections.append(Section(".symtab", bytes(rows), SYMTAB, 0, names))
        sections.append(Section(".strtab", b"", STRTAB, 0))
        for target, found in self.relocations.items():
            content = b"".join(
                struct.pack("<QQq", offset, order[name] << 32 | kind, addend)
                for offset, kind, name, addend in found
            )
            sections.append(Section(f".rela{target}", content, RELA, 0, table, numbers[target]))
        sections[names - 1].content = bytes(strings.data)
        headings = _Strings()
        heads = [headings.add(s.name) for s in sections]
        heads.append(headings.add(".shstrtab"))
        sections.append(Section(".shstrtab", bytes(headings.data), STRTAB, 0))
        body, headers = bytearray(64), bytearray(64)
        for section, name in zip(sections, heads, strict=True):
            body += bytes(-len(body) % 8)
            size = len(section.content) if section.size is None else section.size
            headers += struct.pack(
                "<IIQQQQIIQQ", name, section.kind, section.flags, 0, len(body), size,
                section.link, section.info, 8, 0,
            )  # fmt: skip
            body += section.content
        body += bytes(-len(body) % 8)
        head = b"\x7fELF\x02\x01\x01" + bytes(self.abi) + bytes(7)
        head += struct.pack("<HHIQQQI", self.kind, self.machine, 1, 0, 0, len(body), self.flags)
        head += struct.pack("<HHHHHH", 64, 0, 0, 64, len(headers) // 64, len(sections))
        return head + bytes(body[64:]) + bytes(headers)


class _Strings:
    def __init__(self) -> None:
        self.data = bytearray(1)

    def add(self, name: str) -> int:
        at = len(self.data)
        self.data += name.encode() + b"\0"
        return at


@dataclass(frozen=True)
class K:
    """A kernel of a cubin."""

    name: str
    code: bytes = bytes(64)
    registers: int = 10
    stack: int = 0
    shared: int = 0
    barriers: int = 0
    max_threads: tuple[int, int, int] | None = None
    calls: str = ""
    """A symbol that its code refers to."""


def attribute(code: int, *words: int) -> bytes:
    """An attribute with 32-bit numbers."""
    return struct.pack(f"<BBH{len(words)}I", 4, code, 4 * len(words), *words)


def cubin_file(
    kernels: Sequence[K],
    arch: int = 120,
    suffix: str = "a",
    tool: str = "Cuda compilation tools, release 13.3, V13.3.73",
    data: bytes = b"",
) -> ElfFile:
    """A cubin before it is written, to be changed further."""
    elf = ElfFile(CUDA, 2, 6 << 24 | arch << 8 | 2, (0x41, 8))
    options = f"-arch sm_{arch}{suffix} -m 64 "
    note = bytes(44) + b"ptxas\0" + tool.encode() + b"\0" + options.encode() + b"\0"
    elf.add(".note.nv.tkinfo", note, kind=NOTE, flags=0)
    elf.add(".nv.compat", struct.pack("<BBBB", 2, 9, suffix == "a", 0), kind=CUDA_INFO, flags=0)
    general = bytearray()
    for number, k in enumerate(kernels, 1):
        general += attribute(0x2F, number, k.registers) + attribute(0x11, number, k.stack)
        general += attribute(0x12, number, k.stack)
    elf.add(".nv.info", bytes(general), kind=CUDA_INFO, flags=0)
    for k in kernels:
        own = struct.pack("<BBBB", 2, 0x4C, k.barriers, 0)
        if k.max_threads:
            own += attribute(0x05, *k.max_threads)
        elf.add(f".nv.info.{k.name}", own, kind=CUDA_INFO, flags=0x40)
        elf.add(f".text.{k.name}", k.code, flags=6)
        elf.add(f".nv.constant0.{k.name}", bytes(908))
        if k.shared:
            elf.add(f".nv.shared.{k.name}", kind=NOBITS, flags=3, size=k.shared)
        elf.symbols.append(Symbol(k.name, f".text.{k.name}", other=ENTRY, size=len(k.code)))
    for k in kernels:
        if k.calls:
            if all(s.name != k.calls for s in elf.symbols):
                elf.symbols.append(Symbol(k.calls))
            elf.relocations[f".text.{k.name}"] = [(16, 0x38, k.calls, 0)]
    if data:
        elf.add(".nv.global.init", data, flags=3)
    return elf


def cubin(*kernels: K, arch: int = 120, suffix: str = "a") -> bytes:
    """The bytes of a cubin."""
    return cubin_file(kernels, arch, suffix).data()


def member(payload: bytes, arch: int = 120, flags: int = FLAG_A, kind: int = 2) -> bytes:
    """A member of a fat binary, compressed as its flags say."""
    stored = payload
    if flags & ZSTD:
        stored = zstandard.ZstdCompressor().compress(payload)
    elif flags & LZ4:
        stored = lz4.block.compress(payload, store_size=False)
    packed = bool(flags & (ZSTD | LZ4))
    body = stored + bytes(-len(stored) % 8)
    head = struct.pack(
        "<HHIQIIHHI", kind, 0x101, 0x70, len(body), len(stored) if packed else 0, 0x40, 8, 1, arch
    )
    head = head.ljust(40, b"\0") + struct.pack("<QQQ", flags, 0, len(payload) if packed else 0)
    return head.ljust(0x70, b"\0") + body


def fatbin(*members: bytes) -> bytes:
    """A container."""
    body = b"".join(members)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(*containers: bytes, name: str = ".nv_fatbin", kind: int = 3) -> bytes:
    """A shared library (or, with kind 1, an object) with these containers."""
    return library_file(*containers, name=name, kind=kind).data()


def library_file(*containers: bytes, name: str = ".nv_fatbin", kind: int = 3) -> ElfFile:
    """The same before it is written."""
    elf = ElfFile(X86_64, kind)
    elf.add(".text", b"\x90" * 32, flags=6)
    elf.symbols.append(Symbol("launch", ".text", size=32))
    if containers:
        elf.add(name, b"".join(containers))
    return elf
