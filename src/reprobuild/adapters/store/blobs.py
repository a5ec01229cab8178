"""File content: adding it, finding it, reading it back verified."""

from __future__ import annotations

import errno
import io
import os

from blake3 import blake3

from reprobuild.adapters.store.faults import damaged, missing
from reprobuild.adapters.store.hashing import digest_hex
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.shelf import CHUNK, IN_MEMORY, Shelf, check_size
from reprobuild.core.digest import Digest

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from typing import BinaryIO

    from _typeshed import WriteableBuffer

    from reprobuild.adapters.store.shelf import Pending
    from reprobuild.core.tree import File

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_QUIETLY = _READ | os.O_NOATIME
"""Leaves the access time: since every blob's is the constant, the first read of each would write
its inode (5 % of what it takes to put 50,000 small files into a layer). For the owner alone."""


class VerifyingReader(io.RawIOBase):
    """Reads a blob; the last bytes are handed out only when the whole has the right digest.

    It hashes on one core: who reads works on what it read, and that is what the others are for.
    """

    def __init__(self, fd: int, hex_digest: str, path: str) -> None:
        super().__init__()
        self._fd = fd
        self._hex = hex_digest
        self._path = path
        self._size = os.fstat(fd).st_size
        self._done = 0
        self._hasher = blake3()
        self._checked = False
        self.name = path

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Reads into `buffer`; raises E-STORE-DAMAGED instead of yielding a wrong content's end."""
        view = memoryview(buffer).cast("B")
        if not len(view):
            return 0
        try:
            count = os.readv(self._fd, [view])
        except OSError as error:
            raise damaged("blob", self._hex, self._path, f"unreadable: {error.strerror}") from error
        self._hasher.update(view[:count])
        self._done += count
        if not self._checked and (count == 0 or self._done >= self._size):
            if self._done != self._size or self._hasher.hexdigest() != self._hex:
                view[:count] = bytes(count)
                raise damaged("blob", self._hex, self._path, "its content has another digest")
            self._checked = True
        elif count:
            self._check_growth()
        return count

    def _check_growth(self) -> None:
        if self._checked:
            raise damaged("blob", self._hex, self._path, "it grew while it was read")

    def close(self) -> None:
        """Closes the file."""
        if not self.closed:
            os.close(self._fd)
        super().close()


class Blobs(Shelf):
    """The blobs of a store."""

    def __init__(self, staging: Pending, layout: Layout) -> None:
        super().__init__(staging, layout.blob)
        self._read = _QUIETLY

    def open_fd(self, hex_digest: str, executable: bool | None = None) -> tuple[int, str]:
        """A descriptor of the blob (either mode when `executable` is None) and its path."""
        modes = (False, True) if executable is None else (executable,)
        for mode in modes:
            pending = self._staging.blob(hex_digest, mode)
            candidates = [self._place(hex_digest, mode)]
            if pending is not None:  # a barrier may give it its name between the two looks
                candidates.insert(0, pending)
            for path in candidates:
                try:
                    return os.open(path, _READ), path
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    raise damaged("blob", hex_digest, path, str(error.strerror)) from error
        raise missing("blob", hex_digest)

    def open(self, digest: Digest) -> BinaryIO:
        """A verifying reader."""
        fd, path = self.open_fd(digest.hex)
        return VerifyingReader(fd, digest.hex, path)  # type: ignore[return-value]

    def read(self, file: File) -> bytes:
        """The whole content of a file that fits into memory; raises E-STORE-DAMAGED."""
        hex_digest, size = file.digest.hex, file.size
        path = self._place(hex_digest, file.executable)
        try:
            fd = os.open(path, self._read)
        except OSError as error:  # staged, there in the other mode only, or not at all
            if error.errno == errno.EPERM:
                self._read = _READ  # another user's, and so will be the others
            fd, path = self.open_fd(hex_digest)
        try:
            data = os.read(fd, size + 1)
            while len(data) < size and (more := os.read(fd, size - len(data))):
                data += more
        except OSError as error:
            raise damaged("blob", hex_digest, path, f"unreadable: {error.strerror}") from error
        finally:
            os.close(fd)
        if len(data) != size or blake3(data).hexdigest() != hex_digest:
            raise damaged("blob", hex_digest, path, "its content has another digest or size")
        return data

    def add_bytes(self, data: bytes | bytearray | memoryview, executable: bool) -> str:
        """Stores `data` unless it is here; its digest."""
        hex_digest = digest_hex(data)
        if not self.holds(hex_digest, executable, len(data), data):
            self.stage(hex_digest, data, executable)
        return hex_digest

    def add_stream(self, source: BinaryIO, executable: bool, size: int = -1) -> File:
        """Stores what `source` yields; raises E-CONTENT-SIZE when `size` is given and not met."""
        from reprobuild.core.tree import File

        head = _read_up_to(source, IN_MEMORY + 1 if size < 0 else min(size, IN_MEMORY) + 1)
        if len(head) <= IN_MEMORY and (size < 0 or len(head) <= size):
            check_size(len(head), size)
            return File(Digest(self.add_bytes(head, executable)), len(head), executable)
        if 0 <= size < len(head):
            check_size(len(head), size)
        hex_digest, total = self.spool(head, source, executable, size)
        return File(Digest(hex_digest), total, executable)

    def ensure_mode(self, file: File) -> bool:
        """Makes sure that the blob is here with that mode bit; False when it is in neither."""
        if self.present(file.digest.hex, file.executable, file.size):
            return True
        if not self.present(file.digest.hex, not file.executable, file.size):
            return False
        with self.open(file.digest) as source:
            self.add_stream(source, file.executable, file.size)
        return True


def _read_up_to(source: BinaryIO, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    while left > 0:
        part = source.read(min(left, CHUNK))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
