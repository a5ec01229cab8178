"""kernels: what device code lies in a tree, remembered by blob."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reprobuild.core.cubin.fatbin import Inflate
from reprobuild.core.cubin.kernel import Kernel
from reprobuild.core.cubin.module import Module, may_be_module, read_module
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File
from reprobuild.engine.narrow import NoMemo, ScanMemo
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

VERSION = 1
"""Moves when the same file is described otherwise: part of the memo's name."""

MAX_MODULE = 4 * 2**30
"""Bytes of the largest file that is looked into."""

KernelTable = dict[str, Module]
"""Path in the tree → what the file there holds."""


def kernel_table(
    content: ContentStore, tree: Digest, inflate: Inflate, memo: ScanMemo | None = None
) -> KernelTable:
    """All files of a tree that hold device code, by path, sorted.

    A function of the tree alone. Every ELF file is looked into, whatever it is called; each blob
    once, when there is a `memo`. Raises E-CUBIN, with the path, for a file whose device code
    cannot be read.
    """
    memo = memo if memo is not None else NoMemo()
    seen: dict[Digest, Module | None] = {}
    found: KernelTable = {}
    for path, entry in elf_files(content, tree):
        if entry.digest not in seen:
            seen[entry.digest] = _module(content, entry, path, inflate, memo)
        module = seen[entry.digest]
        if module is not None:
            found[path] = module
    return dict(sorted(found.items()))


def elf_files(content: ContentStore, tree: Digest, prefix: str = "") -> Iterator[tuple[str, File]]:
    """The files of a tree that may be a module by size, with their paths, sorted."""
    for name, entry in content.tree(tree):
        path = prefix + name.decode("utf-8", "backslashreplace")
        if isinstance(entry, Directory):
            yield from elf_files(content, entry.digest, path + "/")
        elif isinstance(entry, File) and entry.size >= 64:
            yield path, entry


def _module(
    content: ContentStore, entry: File, path: str, inflate: Inflate, memo: ScanMemo
) -> Module | None:
    known = memo.get(entry.digest)
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
    return json.dumps([module.archs, module.ptx, rows, module.relocatable]).encode()


def decode(data: bytes) -> Module | None:
    """What `encode` was given."""
    document: Any = json.loads(data)
    if document is None:
        return None
    archs, ptx, rows, relocatable = document
    kernels = tuple(_row(row) for row in rows)
    return Module(tuple(archs), tuple(ptx), kernels, relocatable)


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
