"""What device code lies in a tree, remembered by blob."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Protocol

from reprobuild.core.cubin.fatbin import Inflate
from reprobuild.core.cubin.kernel import Kernel
from reprobuild.core.cubin.module import Module, may_be_module, read_module
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File, Tree
from reprobuild.errors import ReprobuildError

VERSION = 2
"""Moves when the same file is described otherwise: part of the memo's name."""

MAX_MODULE = 4 * 2**30
"""Bytes of the largest file that is looked into."""

KernelTable = dict[str, Module]
"""Path in the tree → what the file there holds."""


class Content(Protocol):
    """What is asked of a store (part of ports.ContentStore)."""

    def tree(self, digest: Digest) -> Tree:
        """A directory node."""
        ...

    def open_blob(self, digest: Digest) -> BinaryIO:
        """A file's content."""
        ...


class ModuleMemo(Protocol):
    """Remembers descriptions by blob. May forget; never lies."""

    def get(self, blob: Digest) -> bytes | None:
        """What was put for a blob."""
        ...

    def put(self, scans: Mapping[Digest, bytes]) -> None:
        """Remembers."""
        ...


def kernel_table(
    content: Content, tree: Digest, inflate: Inflate, memo: ModuleMemo | None = None
) -> KernelTable:
    """All files of a tree that hold device code, by path, sorted.

    A function of the tree alone. Every ELF file is looked into, whatever it is called; each blob
    once, when there is a `memo`. Raises E-CUBIN, with the path, for a file whose device code
    cannot be read.
    """
    seen: dict[Digest, Module | None] = {}
    found: KernelTable = {}
    for path, entry in elf_files(content, tree):
        if entry.digest not in seen:
            seen[entry.digest] = _module(content, entry, path, inflate, memo)
        module = seen[entry.digest]
        if module is not None:
            found[path] = module
    return dict(sorted(found.items()))


def elf_files(content: Content, tree: Digest, prefix: str = "") -> Iterator[tuple[str, File]]:
    """The files of a tree that may be a module by size, with their paths, sorted."""
    for name, entry in content.tree(tree):
        path = prefix + name.decode("utf-8", "backslashreplace")
        if isinstance(entry, Directory):
            yield from elf_files(content, entry.digest, path + "/")
        elif isinstance(entry, File) and entry.size >= 64:
            yield path, entry


def _module(
    content: Content, entry: File, path: str, inflate: Inflate, memo: ModuleMemo | None
) -> Module | None:
    known = memo.get(entry.digest) if memo is not None else None
    if known is not None:
        return decode(known)
    with content.open_blob(entry.digest) as blob:
        head = blob.read(64)
        if not may_be_module(head):
            return None
        if entry.size > MAX_MODULE:
            raise ReprobuildError("E-CUBIN", f"{path} is too large to be looked into", file=path)
        data = head + blob.read()
    try:
        module = read_module(data, inflate)
    except ReprobuildError as error:
        raise ReprobuildError("E-CUBIN", f"{path}: {error.message}", file=path) from error
    if memo is not None:
        memo.put({entry.digest: encode(module)})
    return module


def encode(module: Module | None) -> bytes:
    """The remembered form."""
    if module is None:
        return b"null"
    rows = [
        [
            *(k.name, k.arch, k.registers, k.stack, k.local_stores, k.local_loads, k.shared),
            *(k.constant, k.barriers, k.code_size, k.code.hex),
            *(k.max_threads, k.required_threads, k.copies),
        ]
        for k in module.kernels
    ]
    return json.dumps(
        [module.archs, module.ptx, rows, module.relocatable, module.ptx_only]
    ).encode()


def decode(data: bytes) -> Module | None:
    """What `encode` was given."""
    document: Any = json.loads(data)
    if document is None:
        return None
    archs, ptx, rows, relocatable, ptx_only = document
    kernels = tuple(_row(row) for row in rows)
    return Module(tuple(archs), tuple(ptx), kernels, relocatable, ptx_only)


def _row(row: list[Any]) -> Kernel:
    name, arch, registers, stack, stores, loads, shared, constant, barriers, size, *rest = row
    code, most, required, copies = rest
    return Kernel(
        name=name,
        arch=arch,
        registers=registers,
        stack=stack,
        local_stores=stores,
        local_loads=loads,
        shared=shared,
        constant=constant,
        barriers=barriers,
        code_size=size,
        code=Digest(code),
        max_threads=tuple(most),
        required_threads=tuple(required),
        copies=copies,
    )
