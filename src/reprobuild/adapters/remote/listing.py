"""A Tree message of a server's, taken apart: which files it wants, which trees it comes to."""

from __future__ import annotations

import re
from typing import Any

from reprobuild.adapters.remote.server import lied
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.core.digest import Digest
from reprobuild.core.remote.function import Function
from reprobuild.core.remote.wire import Blob, split_tree
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree, check_depth
from reprobuild.errors import ReprobuildError

_HASH = re.compile(r"[0-9a-f]{64}\Z")


class Listing:
    """A Tree message taken apart: every directory under the digest of its very bytes."""

    def __init__(self, node: str, data: bytes, limit: int, function: Function) -> None:
        self._node, self._limit = node, limit
        try:
            root, children = split_tree(data)
        except ValueError as error:
            raise lied(node, f"gave a Tree that is none: {error}") from None
        self._raw = {function.blob(child): child for child in children}
        self._parsed: dict[Blob, Any] = {}
        self._root = self._parse(root)
        self.files: set[tuple[Blob, bool]] = set()
        self._total = 0
        self._walk()

    def _parse(self, raw: bytes) -> Any:
        message = stubs().re.Directory()
        try:
            message.ParseFromString(raw)
        except ValueError as error:  # protobuf's DecodeError is one
            raise lied(self._node, f"gave a Directory that is none: {error}") from None
        return message

    def _child(self, digest: Any) -> Any:
        blob = Blob(digest.hash, digest.size_bytes)
        found = self._parsed.get(blob)
        if found is None:
            raw = self._raw.get(blob)
            if raw is None:
                raise lied(self._node, f"gave a Tree without its directory {blob.hash[:80]}")
            found = self._parsed[blob] = self._parse(raw)
        return found

    def _walk(self) -> None:
        # One directory in many places is many files on a disk, so the sum goes over the places.
        stack = [(self._root, 0)]
        while stack:
            message, level = stack.pop()
            check_depth(level, "an output of a remote build")
            for file in message.files:
                blob = Blob(file.digest.hash, file.digest.size_bytes)
                if blob.size < 0 or not _HASH.match(blob.hash):
                    raise lied(self._node, f"gave a Directory with an impossible digest: {blob}")
                self._total += blob.size + 64
                self.files.add((blob, file.is_executable))
            self._total += 64 * (len(message.directories) + len(message.symlinks))
            if self._total > self._limit + 2**24:
                raise ReprobuildError(
                    "E-OUTPUT-SIZE",
                    f"an output of a remote build has more than {self._limit} bytes",
                )
            stack += [(self._child(d.digest), level + 1) for d in message.directories]

    def build(self, files: dict[tuple[Blob, bool], File], nodes: dict[Digest, Tree]) -> Digest:
        """Our trees, children first, into `nodes`; returns the root's digest."""
        made: dict[int, Digest] = {}
        stack = [self._root]
        while stack:
            message = stack[-1]
            below = [self._child(d.digest) for d in message.directories]
            if todo := [m for m in below if id(m) not in made]:
                stack += todo
                continue
            stack.pop()
            tree = self._tree(message, files, [made[id(m)] for m in below])
            made[id(message)] = tree.digest
            nodes[tree.digest] = tree
        return made[id(self._root)]

    def _tree(
        self, message: Any, files: dict[tuple[Blob, bool], File], below: list[Digest]
    ) -> Tree:
        entries: dict[bytes, Entry] = {}
        count = 0
        for file in message.files:
            blob = Blob(file.digest.hash, file.digest.size_bytes)
            entries[file.name.encode()] = files[blob, file.is_executable]
            count += 1
        for item, digest in zip(message.directories, below, strict=True):
            entries[item.name.encode()] = Directory(digest)
            count += 1
        for link in message.symlinks:
            entries[link.name.encode()] = Symlink(link.target.encode())
            count += 1
        if count != len(entries):
            raise lied(self._node, "gave a Directory that names one entry twice")
        return Tree.of(entries)
