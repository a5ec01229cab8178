"""Reading the ABI of what was built, and comparing it with what is declared."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import BinaryIO

from reprobuild.core.abi import BuiltFacts, ElfFacts, built_facts
from reprobuild.core.cubin.module import Module
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File
from reprobuild.ports import ContentStore

ELF = b"\x7fELF"
MAX_BYTES = 4 * 2**30
ReadElf = Callable[[BinaryIO, str], ElfFacts | None]


def read_abi(
    content: ContentStore, tree: Digest, read: ReadElf, modules: Mapping[str, Module]
) -> BuiltFacts:
    """What a component's tree says: its ELF files, wheel tags, file names and device code."""
    elves: list[ElfFacts] = []
    paths: list[str] = []
    wheels: dict[str, str] = {}
    stack: list[tuple[str, Digest]] = [("", tree)]
    while stack:
        prefix, digest = stack.pop()
        for raw, entry in content.tree(digest):
            path = prefix + raw.decode("utf-8", "replace")
            if isinstance(entry, Directory):
                stack.append((path + "/", entry.digest))
            elif isinstance(entry, File):
                paths.append(path)
                if path.endswith(".dist-info/WHEEL") and entry.size < 2**16:
                    with content.open_blob(entry.digest) as blob:
                        wheels[path] = blob.read().decode("utf-8", "replace")
                elif entry.size <= MAX_BYTES:
                    found = _elf(content, entry, path, read)
                    if found is not None:
                        elves.append(found)
    archs = {arch: path for path, module in modules.items() for arch in module.archs}
    return built_facts(elves, sorted(paths), wheels, archs)


def _elf(content: ContentStore, entry: File, path: str, read: ReadElf) -> ElfFacts | None:
    with content.open_blob(entry.digest) as blob:
        head = blob.read(4)
        if head != ELF:
            return None
        # Readers of blobs check as they go, from beginning to end; ELF is read in jumps.
        return read(io.BytesIO(head + blob.read()), path)
