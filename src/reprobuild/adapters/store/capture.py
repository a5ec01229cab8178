"""Taking a directory of the disk as a tree of the store (taking.py reads it).

A blob's name comes from the very bytes that were written, so even an unnoticed change can only
give a tree of what was seen, never a blob under a wrong name.
"""

from __future__ import annotations

import os

from blake3 import blake3

from reprobuild.adapters.buffers import page_aligned
from reprobuild.adapters.store.hashing import PIECE, read_and_hash
from reprobuild.adapters.store.shelf import IN_MEMORY, Shelf
from reprobuild.adapters.store.taker import Opened, ReadError, Taker

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from typing import Any

    from reprobuild.adapters.store.nodes import Nodes
    from reprobuild.adapters.store.staging import Staging


class Keeping(Taker):
    """Adds what it is given to a store, before any name refers to it."""

    def __init__(self, shelf: Shelf, nodes: Nodes | None, staging: Staging | None = None) -> None:
        """`nodes` is None where there will be no nodes, `staging` where it is apart already."""
        self._shelf = shelf
        self._nodes = nodes
        self._staging = staging
        self._room = memoryview(b"")
        self._apart = 0

    def short(self, data: bytes, executable: bool) -> bytes:
        """Adds a file's content; its digest."""
        return self._keep(blake3(data).digest(), data, executable)

    def _keep(self, digest: bytes, data: bytes | memoryview, executable: bool) -> bytes:
        hex_digest = digest.hex()
        if not self._shelf.holds(hex_digest, executable, len(data), data):
            self._shelf.stage(hex_digest, data, executable)
        return digest

    def long(self, file: Opened) -> bytes:
        """The same for a longer one."""
        # Where the last one was here already, so will be this one: then it need not be kept.
        if file.size > IN_MEMORY or self._shelf.spared:
            return self._streamed(file)
        return self._in_memory(file)

    def _in_memory(self, file: Opened) -> bytes:
        buffer = self._buffer(file.size + 1)
        hasher, done = blake3(), 0
        try:
            # One byte more than there should be: a file that grew is noticed.
            while done <= file.size and (
                count := os.readv(file.fd, [buffer[done : min(done + PIECE, file.size + 1)]])
            ):
                hasher.update(buffer[done : done + count])
                done += count
        except OSError as error:
            raise ReadError from error
        file.check(done)
        return self._keep(hasher.digest(), buffer[: file.size], file.executable)

    def _buffer(self, size: int) -> memoryview:
        """At least `size` bytes: fresh memory for each file costs more than reading it."""
        if size > len(self._room):
            self._room = page_aligned(min(max(size, 2 * len(self._room), 2**18), IN_MEMORY + 1))
        return self._room

    def _streamed(self, file: Opened) -> bytes:
        # Hashed first: what is here already then costs no write. What is not is read again from
        # the page cache and named by what that second reading yields.
        try:
            digest, size = read_and_hash(file.fd, file.size)
        except OSError as error:
            raise ReadError from error
        file.check(size)
        if self._shelf.holds(digest.hex(), file.executable, size):
            return digest
        os.lseek(file.fd, 0, os.SEEK_SET)
        with open(file.fd, "rb", buffering=0, closefd=False) as source:
            stored, total = self._shelf.spool(b"", source, file.executable)
        if stored != digest.hex() or total != size:
            raise file.changed()
        return digest

    def node(self, data: bytes, below: tuple[str, ...]) -> bytes:
        """Adds a directory node; its digest."""
        assert self._nodes is not None
        return bytes.fromhex(self._nodes.add_node(data, below))

    def apart(self) -> tuple[object, int]:
        """What `apart.KeepingApart` needs, and the session's lock; raises OSError, as for a store
        that takes no more."""
        assert self._staging is not None
        self._apart += 1
        corner = self._staging.corner(self._apart)
        layout = self._staging.layout
        return (layout.blobs, corner, layout.seen), self._staging.session_fd

    def adopt(self, handed: Any) -> None:
        """Hands over what was written and found there."""
        assert self._staging is not None
        new, touched, seen = handed
        for hex_digest, executable, path in new:
            self._staging.add_blob(hex_digest, executable, path)
        for directory in touched:
            self._staging.touch_directory(directory)
        self._staging.seen.adopt(seen)
