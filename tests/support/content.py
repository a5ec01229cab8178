"""A content store in memory, for tests of what works on one."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File, Symlink, Tree
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError


class MemoryContent:
    """Implements `ports.ContentStore` over dictionaries; `directory` is for materialised blobs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs: dict[Digest, bytes] = {}
        self.trees: dict[Digest, Tree] = {}

    def contains(self, tree: Digest) -> bool:
        return tree in self.trees

    def tree(self, digest: Digest) -> Tree:
        return self.trees[digest]

    def open_blob(self, digest: Digest) -> BinaryIO:
        return io.BytesIO(self.blobs[digest])

    def add_blob(self, source: BinaryIO, *, executable: bool = False, size: int = -1) -> File:
        chunks = []
        while chunk := source.read(2**16):
            chunks.append(chunk)
        data = b"".join(chunks)
        if size >= 0 and len(data) != size:
            raise ReprobuildError("E-ARCHIVE", f"{len(data)} bytes instead of {size}")
        digest = Digest.of(data)
        self.blobs[digest] = data
        return File(digest, len(data), executable)

    def add_trees(self, nodes: Mapping[Digest, Tree]) -> None:
        for digest, tree in nodes.items():
            for name, entry in tree:
                if isinstance(entry, File):
                    assert entry.digest in self.blobs, name
                elif isinstance(entry, Directory):
                    assert entry.digest in self.trees or entry.digest in nodes, name
            assert tree.digest == digest
        self.trees.update(nodes)

    def capture(self, directory: Path, *, limit: int = 2**62) -> Digest:
        raise NotImplementedError

    def materialise(self, tree: Digest) -> Path:
        raise NotImplementedError

    def materialise_blob(self, digest: Digest, *, executable: bool) -> Path:
        path = self.directory / digest.hex
        path.write_bytes(self.blobs[digest])
        return path

    def barrier(self) -> None:
        pass

    # -- conveniences for tests ----------------------------------------------------------------

    def one_file(self, name: str, data: bytes) -> Digest:
        """A tree holding one file."""
        return self.make({name: data})

    def make(self, files: Mapping[str | bytes, bytes | str | tuple[bytes, bool]]) -> Digest:
        """A tree: bytes are files, text is a link's target, (bytes, True) an executable file."""
        builder = TreeBuilder()
        for name, value in files.items():
            path = name.encode() if isinstance(name, str) else name
            if isinstance(value, str):
                builder.add(path, Symlink(value.encode()))
            elif isinstance(value, tuple):
                builder.add(path, self.add_blob(io.BytesIO(value[0]), executable=value[1]))
            else:
                builder.add(path, self.add_blob(io.BytesIO(value)))
        digest, nodes = builder.build()
        self.add_trees(nodes)
        return digest

    def listing(self, tree: Digest, prefix: bytes = b"") -> dict[bytes, bytes | str]:
        """All paths: content of files, `-> target` of links, `/` of empty directories, `!` before
        the content of executable files."""
        out: dict[bytes, bytes | str] = {}
        for name, entry in self.trees[tree]:
            path = prefix + name
            if isinstance(entry, File):
                out[path] = (b"!" if entry.executable else b"") + self.blobs[entry.digest]
            elif isinstance(entry, Symlink):
                out[path] = "-> " + entry.target.decode("utf-8", "surrogateescape")
            elif not self.trees[entry.digest].entries:
                out[path] = "/"
            else:
                out.update(self.listing(entry.digest, path + b"/"))
        return out
