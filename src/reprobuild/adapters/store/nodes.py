"""Directory nodes that are named by hex digits: the part of `trees.py` that imports little."""

from __future__ import annotations

import os

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.faults import damaged, missing
from reprobuild.adapters.store.reading import READ
from reprobuild.adapters.store.staging import Staging
from reprobuild.core.blake import tagged_hex
from reprobuild.core.digest import Digest
from reprobuild.core.node import DOMAIN

_READ = 2**16


class Nodes:
    """The directory nodes of a store, as bytes."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._layout = staging.layout
        self._confirmed: set[str] = set()

    def contains(self, hex_digest: str) -> bool:
        """Whether the tree is here; by the order of commits it is then complete."""
        if self._staging.tree(hex_digest) is not None:
            return True
        path = self._layout.tree(hex_digest)
        if os.path.lexists(path):
            self._staging.touch(path)
            return True
        return self._staging.tree(hex_digest) is not None

    def node(self, digest: Digest) -> bytes:
        """The verified node's bytes; raises E-STORE-MISSING or E-STORE-DAMAGED."""
        data, path = self._read(digest.hex)
        if tagged_hex(DOMAIN, data) != digest.hex:
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

    def add_node(self, data: bytes, children: tuple[str, ...]) -> str:
        """Stores a node whose references are known to be here; its digest.

        `children` are the digests of the nodes it refers to.
        """
        hex_digest = tagged_hex(DOMAIN, data)
        if self.contains(hex_digest):
            self._confirm(hex_digest, data)
            return hex_digest
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
        self._staging.add_tree(hex_digest, path, children)
        return hex_digest

    def _confirm(self, hex_digest: str, data: bytes) -> None:
        """Raises E-STORE-DAMAGED when the node that is here is another: it must not be kept."""
        if hex_digest in self._confirmed:
            return
        found, path = self._read(hex_digest)
        if found != data:
            raise damaged("tree", hex_digest, path, "its content has another digest")
        self._confirmed.add(hex_digest)


def _content(path: str) -> bytes:
    """A file's bytes, by as few calls as there can be: nodes are small and many."""
    fd = os.open(path, READ)
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
