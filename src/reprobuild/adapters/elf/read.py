"""Needed libraries and versions of symbols of one ELF file."""

from __future__ import annotations

import re
from typing import BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from reprobuild.core.abi import ElfFacts, newest

_VERSION = re.compile(r"(?P<family>GLIBC|GLIBCXX|CXXABI|GCC)_(?P<version>\d+(?:\.\d+)*)\Z")
MAX_SYMBOLS = 1_000_000


def read_elf(stream: BinaryIO, path: str) -> ElfFacts | None:
    """From a seekable stream; None for what is no ELF file, or one that cannot be read as one."""
    try:
        elf = ELFFile(stream)
        needed: list[str] = []
        versions: dict[str, list[str]] = {}
        cxx11: bool | None = None
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                needed += [
                    str(tag.needed)  # type: ignore[attr-defined]  # pyelftools sets it by name
                    for tag in section.iter_tags()
                    if tag.entry.d_tag == "DT_NEEDED"
                ]
            elif isinstance(section, GNUVerNeedSection):
                for _, auxiliaries in section.iter_versions():
                    for auxiliary in auxiliaries:
                        match = _VERSION.match(auxiliary.name)
                        if match is not None:
                            versions.setdefault(match["family"], []).append(match["version"])
            elif isinstance(section, SymbolTableSection) and section.name == ".dynsym":
                cxx11 = _cxx11(section)
    # A damaged file makes the library stumble in many ways, all of these among them.
    except (ELFError, ValueError, KeyError, IndexError, AttributeError, OSError, TypeError,
            UnicodeDecodeError, OverflowError, MemoryError, AssertionError):  # fmt: skip
        return None
    found = {family: newest(all_) for family, all_ in versions.items()}
    return ElfFacts(path, tuple(dict.fromkeys(needed)), found, cxx11)


def _cxx11(section: SymbolTableSection) -> bool | None:
    """Whether a symbol of libstdc++'s C++11 ABI is used; None where no C++ symbol is."""
    result: bool | None = None
    for index, symbol in enumerate(section.iter_symbols()):
        if index > MAX_SYMBOLS:
            break
        name = symbol.name
        if "__cxx11" in name or "B5cxx11" in name:
            return True
        if name.startswith(("_ZNSs", "_ZNKSs")):
            result = False
    return result
