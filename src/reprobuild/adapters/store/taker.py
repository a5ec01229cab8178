"""What becomes of the files and directories that a walk reads (taking.py)."""

from __future__ import annotations

from blake3 import blake3

from reprobuild.adapters.store.hashing import read_and_hash
from reprobuild.core import node
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from typing import Any


class Opened:
    """A longer file, open to be read from its beginning."""

    __slots__ = ("executable", "fd", "size")

    def __init__(self, fd: int, size: int, executable: bool) -> None:
        self.fd = fd
        self.size = size
        """In bytes, when it was opened."""
        self.executable = executable

    def check(self, read: int) -> None:
        """Raises E-OUTPUT-CHANGED unless `read` bytes are all, and nothing wrote meanwhile."""
        raise NotImplementedError

    def changed(self) -> ReprobuildError:
        """The error for content that is another at each reading."""
        raise NotImplementedError


class ReadError(Exception):
    """What is taken cannot be read; its cause is the OSError."""


class Taker:
    """What becomes of what is read."""

    def short(self, data: bytes, executable: bool) -> bytes:
        """Takes a file's content; its digest."""
        raise NotImplementedError

    def long(self, file: Opened) -> bytes:
        """The same for a longer one, which is read in pieces. Raises ReadError."""
        raise NotImplementedError

    def node(self, data: bytes, below: tuple[str, ...]) -> bytes:
        """Takes a directory node, after the nodes `below` it (their digests); its digest."""
        raise NotImplementedError

    def apart(self) -> tuple[object, int]:
        """What `served.take` needs to make its like in another process, and the lock that this one
        holds meanwhile or -1; raises OSError."""
        raise NotImplementedError

    def handed(self) -> object:
        """In that process: what the one here has to know of what was taken since the last time."""
        raise NotImplementedError

    def adopt(self, handed: Any) -> None:
        """Here: what another process took."""
        raise NotImplementedError


class Naming(Taker):
    """Names what it is given, and forgets it."""

    def short(self, data: bytes, executable: bool) -> bytes:
        """A file's digest."""
        return blake3(data).digest()

    def long(self, file: Opened) -> bytes:
        """The same for a longer one."""
        try:
            digest, size = read_and_hash(file.fd, file.size)
        except OSError as error:
            raise ReadError from error
        file.check(size)
        return digest

    def node(self, data: bytes, below: tuple[str, ...]) -> bytes:
        """A node's digest."""
        return blake3(node.PREFIX + data).digest()

    def apart(self) -> tuple[object, int]:
        """Nothing is needed."""
        return (), -1

    def handed(self) -> object:
        """Nothing is left."""
        return ()

    def adopt(self, handed: Any) -> None:
        """Nothing is to be done."""
