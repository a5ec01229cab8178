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
        self._order: list[Any] = []
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
        """Every directory once, children first, into `_order`.

        One directory in many places is many files on a disk, so what is summed up goes over the
        places: a directory's own and what each child comes to, as often as it is named.
        """
        levels: dict[int, int] = {}
        totals: dict[int, int] = {}
        stack = [self._root]
        while stack:
            message = stack[-1]
            if id(message) in totals:
                stack.pop()
                continue
            below = self._below(message)
            if todo := [m for m in below if id(m) not in totals]:
                stack += todo
                continue
            stack.pop()
            level = max((levels[id(m)] + 1 for m in below), default=0)
            check_depth(level, "an output of a remote build")
            total = self._own(message) + sum(totals[id(m)] for m in below)
            if total > self._limit + 2**24:
                raise ReprobuildError(
                    "E-OUTPUT-SIZE",
                    f"an output of a remote build has more than {self._limit} bytes",
                )
            levels[id(message)], totals[id(message)] = level, total
            self._order.append(message)

    def _below(self, message: Any) -> list[Any]:
        return [self._child(d.digest) for d in message.directories]

    def _own(self, message: Any) -> int:
        """Bytes of a directory without what is below; its files become known."""
        total = 64 * (len(message.directories) + len(message.symlinks))
        for file in message.files:
            blob = Blob(file.digest.hash, file.digest.size_bytes)
            if blob.size < 0 or not _HASH.match(blob.hash):
                raise lied(self._node, f"gave a Directory with an impossible digest: {blob}")
            total += blob.size + 64
            self.files.add((blob, file.is_executable))
        return total

    def build(self, files: dict[tuple[Blob, bool], File], nodes: dict[Digest, Tree]) -> Digest:
        """Our trees, children first, into `nodes`; returns the root's digest."""
        made: dict[int, Digest] = {}
        for message in self._order:
            tree = self._tree(message, files, [made[id(m)] for m in self._below(message)])
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
