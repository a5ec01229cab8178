"""A git tree object → a tree of the content store. Raw blobs: no eol conversion, no smudging."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from reprobuild.adapters.git.objects import (
    GITLINK,
    SYMLINK,
    BlobStream,
    ObjectReader,
    TreeEntry,
    check_depth,
)
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.tree import EMPTY, MAX_TARGET, Directory, Entry, File, Symlink, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore


def import_tree(git_dirs: Sequence[Path], oid: GitOid, content: ContentStore) -> Digest:
    """Stores the tree that the git tree object `oid` names and returns its digest.

    `git_dirs` are repositories whose objects may be read. Submodules become empty directories,
    LFS pointers stay pointers. Raises E-GIT-MISSING-OBJECT naming path and object,
    E-GIT-OBJECT for an object that is not what its name says.
    """
    with Scratch(git_dirs, sha256=len(oid.hex) == 64) as scratch:
        return import_from(scratch.reader, oid, content)


def import_from(reader: ObjectReader, oid: GitOid, content: ContentStore) -> Digest:
    """`import_tree` over an open reader."""
    return _Importer(reader, content).run(oid)


class _Importer:
    """Walks the directories, then reads all blobs in one go; equal ones of either are met once."""

    def __init__(self, reader: ObjectReader, content: ContentStore) -> None:
        self._reader, self._content = reader, content
        self._listings: dict[GitOid, tuple[TreeEntry, ...]] = {}
        self._wanted: dict[_Key, bytes] = {}
        self._stored: dict[_Key, File | Symlink] = {}
        self._trees: dict[GitOid, Digest] = {}

    def run(self, oid: GitOid) -> Digest:
        self._walk(oid, b"")
        self._read()
        return self._build(oid)

    def _walk(self, root: GitOid, path: bytes) -> None:
        stack = [(root, path)]
        while stack:
            oid, path = stack.pop()
            check_depth(path)
            if oid in self._listings:
                continue
            try:
                listing = self._reader.tree(oid)
            except ReprobuildError as error:
                raise _located(error, path) from error
            self._listings[oid] = listing
            for entry in listing:
                if entry.is_tree:
                    stack.append((entry.oid, path + entry.name + b"/"))
                elif entry.mode != GITLINK:
                    self._wanted.setdefault(_key(entry), path + entry.name)

    def _read(self) -> None:
        keys = list(self._wanted)
        blobs = self._reader.blobs(oid for oid, _ in keys)
        try:
            for key in keys:
                path = self._wanted[key]
                try:
                    _, stream = next(blobs)
                    self._stored[key] = self._store(stream, key[1], path)
                except ReprobuildError as error:
                    raise _located(error, path) from error
        finally:
            blobs.close()

    def _store(self, stream: BlobStream, mode: int, path: bytes) -> File | Symlink:
        if mode != SYMLINK:
            return self._content.add_blob(
                cast("BinaryIO", stream), executable=bool(mode), size=stream.size
            )
        target = stream.read() if stream.size <= MAX_TARGET else b""
        if not target or b"\0" in target:
            raise ReprobuildError(
                "E-GIT-OBJECT",
                f"the symbolic link {_show(path)} has a target that no system allows",
                path=_show(path),
            )
        return Symlink(target)

    def _build(self, oid: GitOid) -> Digest:
        known = self._trees.get(oid)
        if known is not None:
            return known
        entries: dict[bytes, Entry] = {}
        for entry in self._listings[oid]:
            if entry.is_tree:
                entries[entry.name] = Directory(self._build(entry.oid))
            elif entry.mode == GITLINK:
                self._content.add_trees({EMPTY.digest: EMPTY})
                entries[entry.name] = Directory(EMPTY.digest)
            else:
                entries[entry.name] = self._stored[_key(entry)]
        node = Tree.of(entries)
        digest = node.digest
        self._content.add_trees({digest: node})
        self._trees[oid] = digest
        return digest


_Key = tuple[GitOid, int]


def _key(entry: TreeEntry) -> _Key:
    """What is stored for an entry: its blob, and whether as a link, executable or plain."""
    return entry.oid, SYMLINK if entry.mode == SYMLINK else entry.mode & 0o100


def _show(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _located(error: ReprobuildError, path: bytes) -> ReprobuildError:
    if error.facts.get("path"):
        return error
    place = _show(path) or "the root"
    located = ReprobuildError(error.code, f"{error.message}; it is needed for {place}")
    located.facts = {**error.facts, "path": place}
    return located
