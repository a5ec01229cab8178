"""A store tree as the bytes of a layer's tar, streamed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reprobuild.core import filelist
from reprobuild.core.digest import Digest
from reprobuild.core.filelist import Listed
from reprobuild.core.imagetar import BLOCK, DIRECTORY, END, REGULAR, SYMLINK, Attributes, header
from reprobuild.core.tree import Directory, File
from reprobuild.ports import ContentStore

CHUNK = 2**20
GATHER = 2**18
"""Bytes that small pieces are gathered into: each costs what follows as much as a large one."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Attributes that are not the default: by path, for entries that exist.

    `mtime` (seconds since the epoch) is everything else's.
    """

    mtime: int
    paths: Mapping[bytes, Attributes] = field(default_factory=dict)

    def of(self, path: bytes, default_mode: int) -> Attributes:
        """The attributes of the entry at `path`."""
        found = self.paths.get(path)
        return found if found is not None else Attributes(default_mode, mtime=self.mtime)


def tar_pieces(
    content: ContentStore,
    tree: Digest,
    overrides: Overrides,
    listed: Callable[[Listed], None] | None = None,
) -> Iterator[bytes]:
    """The tar of `tree`: each directory before what it holds, names in order of their bytes.

    `listed` is told of every entry, its content's SHA-256 included, once its last byte was given.
    """
    pending: list[bytes] = []
    size = 0
    for piece in _pieces(content, tree, overrides, listed):
        pending.append(piece)
        size += len(piece)
        if size >= GATHER:
            yield b"".join(pending)
            pending, size = [], 0
    yield b"".join((*pending, END))


def _pieces(
    content: ContentStore,
    tree: Digest,
    overrides: Overrides,
    listed: Callable[[Listed], None] | None,
) -> Iterator[bytes]:
    def tell(kind: str, said: Attributes, path: bytes, **what: Any) -> None:
        if listed is not None:
            listed(Listed(kind, said.mode, said.uid, said.gid, path=path, **{"size": 0, **what}))

    waiting = [iter([(path, entry) for path, entry in content.tree(tree).entries])]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
            continue
        path, entry = found
        if isinstance(entry, Directory):
            said = overrides.of(path, 0o755)
            yield header(DIRECTORY, path, said)
            tell(filelist.DIRECTORY, said, path)
            below = content.tree(entry.digest).entries
            waiting.append(iter([(path + b"/" + name, child) for name, child in below]))
        elif isinstance(entry, File):
            said = overrides.of(path, 0o755 if entry.executable else 0o644)
            yield header(REGULAR, path, said, size=entry.size)
            hasher = hashlib.sha256()
            if entry.size:
                with content.open_blob(entry.digest) as source:
                    while chunk := source.read(CHUNK):
                        if listed is not None:
                            hasher.update(chunk)
                        yield chunk
                if entry.size % BLOCK:
                    yield bytes(-entry.size % BLOCK)
            kind = filelist.EXECUTABLE if entry.executable else filelist.FILE
            tell(kind, said, path, size=entry.size, content=hasher.hexdigest())
        else:
            said = overrides.of(path, 0o777)
            yield header(SYMLINK, path, said, target=entry.target)
            tell(filelist.LINK, said, path, target=entry.target)
