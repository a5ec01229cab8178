"""Directory nodes: adding them after what they refer to, reading them back verified."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.blobs import Blobs
from reprobuild.adapters.store.faults import damaged, missing
from reprobuild.adapters.store.staging import Staging
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.tree import DOMAIN, Directory, File, Tree, check_depth, decode
from reprobuild.errors import ReprobuildError

_READ = 2**16


class Trees:
    """The directory nodes of a store."""

    def __init__(self, staging: Staging, blobs: Blobs) -> None:
        self._staging = staging
        self._blobs = blobs
        self._layout = staging.layout
        self._confirmed: set[str] = set()
        self._heights: dict[Digest, int] = {}
        """Of what was added through this object."""

    def contains(self, hex_digest: str) -> bool:
        """Whether the tree is here; by the order of commits it is then complete."""
        if self._staging.tree(hex_digest) is not None:
            return True
        path = self._layout.tree(hex_digest)
        if os.path.lexists(path):
            self._staging.touch(path)
            return True
        return self._staging.tree(hex_digest) is not None

    def get(self, digest: Digest) -> Tree:
        """The verified node; raises E-STORE-MISSING or E-STORE-DAMAGED."""
        return decode(self.node(digest))

    def node(self, digest: Digest) -> bytes:
        """The verified node's bytes; raises E-STORE-MISSING or E-STORE-DAMAGED."""
        data, path = self._read(digest.hex)
        if tagged(DOMAIN, data) != digest:
            raise damaged("tree", digest.hex, path, "its content has another digest")
        return data

    def _read(self, hex_digest: str) -> tuple[bytes, str]:
        pending = self._staging.tree(hex_digest)
        candidates = [self._layout.tree(hex_digest)]
        if pending is not None:  # a barrier may give it its name between the two looks
            candidates.insert(0, pending)
        for path in candidates:
            try:
                return _content(path), path
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise damaged("tree", hex_digest, path, str(error.strerror)) from error
        raise missing("tree", hex_digest)

    def add(self, tree: Tree) -> Digest:
        """Stores a node whose references are known to be here; its digest."""
        children = tuple(e.digest.hex for _, e in tree.entries if isinstance(e, Directory))
        return self.add_node(tree.encode(), children)

    def add_node(self, data: bytes, children: tuple[str, ...]) -> Digest:
        """The same for a node's bytes; `children` are the digests of the nodes it refers to."""
        digest = tagged(DOMAIN, data)
        if self.contains(digest.hex):
            self._confirm(digest, data)
            return digest
        path = self._staging.temporary()
        fd = durable.create(path)
        try:
            try:
                durable.write(fd, data)
                durable.utime(fd)
            finally:
                os.close(fd)
        except BaseException:
            durable.forget(path)
            raise
        self._staging.add_tree(digest.hex, path, children)
        return digest

    def _confirm(self, digest: Digest, data: bytes) -> None:
        """Raises E-STORE-DAMAGED when the node that is here is another: it must not be kept."""
        if digest.hex in self._confirmed:
            return
        found, path = self._read(digest.hex)
        if found != data:
            raise damaged("tree", digest.hex, path, "its content has another digest")
        self._confirmed.add(digest.hex)

    def add_all(self, nodes: Mapping[Digest, Tree]) -> None:
        """Stores nodes, children first.

        Raises E-TREE for a node under another's digest or over too many levels, and
        E-STORE-MISSING for a reference to something that is neither in `nodes` nor here; nothing
        that lacks a part is ever named.
        """
        for digest, tree in children_first(nodes):
            below = [e.digest for _, e in tree.entries if isinstance(e, Directory)]
            height = max((self._heights.get(d, 0) + 1 for d in below), default=0)
            check_depth(height, f"something in the tree {digest}")
            self._heights[digest] = height
            if self.contains(digest.hex):
                if tree.digest == digest:
                    self._confirm(digest, tree.encode())
                continue
            if tree.digest != digest:
                raise ReprobuildError(
                    "E-TREE", f"a directory node has the digest {tree.digest}, not {digest}"
                )
            for name, entry in tree.entries:
                self._check_reference(digest, name, entry)
            self.add(tree)

    def _check_reference(self, digest: Digest, name: bytes, entry: object) -> None:
        if isinstance(entry, Directory):
            here = self.contains(entry.digest.hex)
        elif isinstance(entry, File):
            here = self._blobs.ensure_mode(entry)
        else:
            return
        if not here:
            raise ReprobuildError(
                "E-STORE-MISSING",
                f"the tree {digest} refers to {entry.digest} ({name!r}), which is not in the store",
                object=entry.digest.hex,
                referrer=digest.hex,
            )


def _content(path: str) -> bytes:
    """A file's bytes, by as few calls as there can be: nodes are small and many."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _READ)
        if len(data) == _READ:
            parts = [data]
            while part := os.read(fd, 2**20):
                parts.append(part)
            data = b"".join(parts)
    finally:
        os.close(fd)
    return data


def children_first(nodes: Mapping[Digest, Tree]) -> Iterator[tuple[Digest, Tree]]:
    """The nodes in an order in which each comes after those of its children that are given."""
    entered: set[Digest] = set()  # keys may lie, so a "cycle" has to end, too
    for start in nodes:
        stack = [(start, False)]
        while stack:
            digest, expanded = stack.pop()
            if expanded:
                yield digest, nodes[digest]
                continue
            if digest in entered:
                continue
            entered.add(digest)
            stack.append((digest, True))
            for _, entry in nodes[digest].entries:
                if isinstance(entry, Directory) and entry.digest in nodes:
                    stack.append((entry.digest, False))
