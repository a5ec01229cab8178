"""A module: a file that holds device code, and all kernels in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reprobuild.core.cubin import elf as elves
from reprobuild.core.cubin import fatbin
from reprobuild.core.cubin.elf import Elf
from reprobuild.core.cubin.fatbin import Entry, Inflate
from reprobuild.core.cubin.kernel import Kernel, cubin_arch, kernels

_EXECUTABLE, _RELOCATABLE = b".nv_fatbin", b"__nv_relfatbin"


@dataclass(frozen=True, slots=True)
class Module:
    """What device code a file holds.

    `archs`: those of machine code, sorted. `ptx`: those that PTX (or NVVM code) is there for,
    which a driver would compile when it is loaded. `kernels` sorted by name, architecture, code;
    equal ones are one row with `copies`. `relocatable`: not yet linked, so figures may still grow.
    `ptx_only`: how many of the objects in it hold PTX and no machine code at all.
    """

    archs: tuple[str, ...]
    ptx: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    relocatable: bool = False
    ptx_only: int = 0

    def by_name(self) -> Mapping[str, tuple[Kernel, ...]]:
        """Kernels by mangled name: usually one, more for several architectures."""
        found: dict[str, list[Kernel]] = {}
        for kernel in self.kernels:
            found.setdefault(kernel.name, []).append(kernel)
        return {name: tuple(rows) for name, rows in found.items()}


def may_be_module(head: bytes) -> bool:
    """Whether a file whose first 20 bytes these are could hold device code."""
    if head[:4] == fatbin.MAGIC_BYTES:
        return True
    machines = (elves.EM_X86_64, elves.EM_CUDA, elves.EM_AARCH64)
    return elves.is_elf(head) and int.from_bytes(head[18:20], "little") in machines


def members(data: bytes | memoryview) -> tuple[Elf | None, list[Entry], bool]:
    """(the file as ELF, its fat binaries' members, whether they are relocatable).

    No members: the file is a bare cubin, or holds no device code. As in cuobjdump, relocatable
    code counts only where no executable is.
    """
    view = memoryview(data)
    if view[:4] == fatbin.MAGIC_BYTES:
        return None, list(fatbin.entries(view)), False
    elf = elves.parse(view)
    for name in (_EXECUTABLE, _RELOCATABLE):
        found = [
            entry
            for section in elf.sections
            if section.name == name
            for entry in fatbin.entries(elf.content(section))
        ]
        if found:
            return elf, found, name == _RELOCATABLE
    return elf, [], False


def read_module(data: bytes | memoryview, inflate: Inflate) -> Module | None:
    """What is in a library, an object, a fat binary or a cubin; None where there is no device code.

    Raises E-CUBIN for a damaged file.
    """
    elf, entries, relocatable = members(data)
    if not entries:
        if elf is None or elf.machine != elves.EM_CUDA:
            return None
        return Module((cubin_arch(elf),), (), _sorted(kernels(elf)), elf.kind == elves.ET_REL)
    found: list[Kernel] = []
    archs, ptx = set(), set()
    compiled, portable = set(), set()
    for entry in entries:
        if entry.kind == "cubin":
            archs.add(entry.arch)
            compiled.add(entry.container)
            found += kernels(entry.payload(inflate), entry.arch)
        else:
            ptx.add(entry.arch)
            portable.add(entry.container)
    return Module(
        tuple(sorted(archs)),
        tuple(sorted(ptx)),
        _sorted(iter(found)),
        relocatable,
        len(portable - compiled),
    )


def _sorted(rows: Iterator[Kernel]) -> tuple[Kernel, ...]:
    counts: dict[Kernel, int] = {}
    for kernel in rows:
        counts[kernel] = counts.get(kernel, 0) + 1
    merged = (replace(kernel, copies=count) for kernel, count in counts.items())
    return tuple(sorted(merged, key=lambda k: (k.name, k.arch, k.code)))
