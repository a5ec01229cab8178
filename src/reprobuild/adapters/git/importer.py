"""A git tree object → a tree of the content store. Raw blobs: no eol conversion, no smudging."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from reprobuild.adapters.git.objects import GITLINK, SYMLINK, ObjectReader, TreeEntry
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.tree import EMPTY, MAX_TARGET, Directory, Entry, File, Symlink, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

_BATCH = 256


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
    return _Importer(reader, content).directory(oid, b"")


class _Importer:
    """Depth first; equal subtrees and blobs are read once."""

    def __init__(self, reader: ObjectReader, content: ContentStore) -> None:
        self._reader, self._content = reader, content
        self._trees: dict[GitOid, Digest] = {}
        self._files: dict[tuple[GitOid, bool], File] = {}

    def directory(self, oid: GitOid, path: bytes) -> Digest:
        known = self._trees.get(oid)
        if known is not None:
            return known
        try:
            listing = self._reader.tree(oid)
        except ReprobuildError as error:
            raise _located(error, path) from error
        names = [e.name for e in listing]
        if len(set(names)) != len(names):
            raise ReprobuildError(
                "E-GIT-OBJECT", f"git tree {oid} names one entry twice", object=oid.hex
            )
        entries: dict[bytes, Entry] = {}
        files = [e for e in listing if e.mode not in (GITLINK, SYMLINK) and not e.is_tree]
        for start in range(0, len(files), _BATCH):
            self._blobs(files[start : start + _BATCH], path)
        for entry in listing:
            entries[entry.name] = self._entry(entry, path)
        node = Tree.of(entries)
        digest = node.digest
        self._content.add_trees({digest: node})
        self._trees[oid] = digest
        return digest

    def _entry(self, entry: TreeEntry, path: bytes) -> Entry:
        place = path + entry.name
        if entry.is_tree:
            return Directory(self.directory(entry.oid, place + b"/"))
        if entry.mode == GITLINK:
            self._content.add_trees({EMPTY.digest: EMPTY})
            return Directory(EMPTY.digest)
        if entry.mode == SYMLINK:
            try:
                target = self._reader.read(entry.oid, "blob")
            except ReprobuildError as error:
                raise _located(error, place) from error
            if not target or b"\0" in target or len(target) > MAX_TARGET:
                raise ReprobuildError(
                    "E-GIT-OBJECT",
                    f"the symbolic link {_show(place)} has a target that no system allows",
                    path=_show(place),
                )
            return Symlink(target)
        return self._files[entry.oid, bool(entry.mode & 0o100)]

    def _blobs(self, entries: Sequence[TreeEntry], path: bytes) -> None:
        wanted: dict[tuple[GitOid, bool], bytes] = {}
        for entry in entries:
            key = (entry.oid, bool(entry.mode & 0o100))
            if key not in self._files:
                wanted.setdefault(key, entry.name)
        keys = list(wanted)
        blobs = self._reader.blobs(oid for oid, _ in keys)
        for key in keys:
            try:
                _, stream = next(blobs)
            except ReprobuildError as error:
                raise _located(error, path + wanted[key]) from error
            self._files[key] = self._content.add_blob(
                cast("BinaryIO", stream), executable=key[1], size=stream.size
            )
        for _ in blobs:  # drains the last one
            raise AssertionError("more blobs than were asked for")


def _show(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _located(error: ReprobuildError, path: bytes) -> ReprobuildError:
    if error.facts.get("path"):
        return error
    place = _show(path) or "the root"
    located = ReprobuildError(error.code, f"{error.message}; it is needed for {place}")
    located.facts = {**error.facts, "path": place}
    return located
