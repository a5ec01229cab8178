"""File content: adding it, finding it, reading it back verified."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from blake3 import blake3

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.hashing import content_problem, digest_hex, new_hasher
from reprobuild.adapters.store.layout import Layout
from reprobuild.core.digest import Digest
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 2**20
IN_MEMORY = 8 * 2**20
"""Content up to this size is hashed before anything is written: what is here costs no write."""

_WORTH_BEGINNING = 64 * 1024
"""The disk may begin with content of so many bytes while the next is read and hashed."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_QUIETLY = _READ | os.O_NOATIME
"""Leaves the access time: since every blob's is the constant, the first read of each would write
its inode (5 % of what it takes to put 50,000 small files into a layer). For the owner alone."""


def missing(kind: str, hex_digest: str) -> ReprobuildError:
    """The E-STORE-MISSING of an object."""
    return ReprobuildError(
        "E-STORE-MISSING",
        f"the {kind} blake3:{hex_digest} is not in the store",
        object=f"{kind} {hex_digest}",
    )


def damaged(kind: str, hex_digest: str, path: str | Path, reason: str) -> ReprobuildError:
    """The E-STORE-DAMAGED of an object."""
    return ReprobuildError(
        "E-STORE-DAMAGED",
        f"the {kind} blake3:{hex_digest} is damaged: {reason} ({path})",
        object=f"{kind} {hex_digest}",
        path=str(path),
        reason=reason,
    )


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


class Pending(Protocol):
    """What blobs need of `Staging`."""

    layout: Layout

    def temporary(self) -> str: ...
    def blob(self, hex_digest: str, executable: bool) -> str | None: ...
    def add_blob(self, hex_digest: str, executable: bool, path: str) -> None: ...
    def touch(self, path: str) -> None: ...


class Blobs:
    """The blobs of a store."""

    def __init__(self, staging: Pending) -> None:
        self._staging = staging
        self._layout = staging.layout
        self._confirmed: set[str] = set()
        self._read = _QUIETLY

    def present(self, hex_digest: str, executable: bool, size: int) -> bool:
        """Whether the blob is here; raises E-STORE-DAMAGED for another size or content.

        The content is read where the file's time or mode is not what every blob has: something
        has written to it. Who brings the content asks `holds`.
        """
        return self._find(hex_digest, executable, size, read=False)

    def holds(self, hex_digest: str, executable: bool, size: int) -> bool:
        """`present`, with the content read once in this object's life.

        To be asked before content in hand is dropped because it is here already: a rebuild must
        not confirm a blob that rotted.
        """
        return self._find(hex_digest, executable, size, read=True)

    def _find(self, hex_digest: str, executable: bool, size: int, *, read: bool) -> bool:
        if self._staging.blob(hex_digest, executable) is not None:
            return True
        path = self._layout.blob(hex_digest, executable)
        try:
            info = os.stat(path, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return self._staging.blob(hex_digest, executable) is not None
            raise
        if info.st_size != size:
            raise damaged("blob", hex_digest, path, f"{info.st_size} bytes instead of {size}")
        mode = 0o555 if executable else 0o444
        touched = info.st_mtime_ns != durable.EPOCH_NS or stat.S_IMODE(info.st_mode) != mode
        if (read or touched) and path not in self._confirmed:
            reason = content_problem(path, hex_digest, size)
            if reason:
                raise damaged("blob", hex_digest, path, reason)
            self._confirmed.add(path)
        self._staging.touch(path)
        return True

    def open_fd(self, hex_digest: str, executable: bool | None = None) -> tuple[int, str]:
        """A descriptor of the blob (either mode when `executable` is None) and its path."""
        modes = (False, True) if executable is None else (executable,)
        for mode in modes:
            pending = self._staging.blob(hex_digest, mode)
            candidates = [self._layout.blob(hex_digest, mode)]
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
        return cast(BinaryIO, VerifyingReader(fd, digest.hex, path))

    def read(self, file: File) -> bytes:
        """The whole content of a file that fits into memory; raises E-STORE-DAMAGED."""
        hex_digest, size = file.digest.hex, file.size
        path = self._layout.blob(hex_digest, file.executable)
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
        if not self.holds(hex_digest, executable, len(data)):
            self.stage(hex_digest, data, executable)
        return hex_digest

    def stage(
        self, hex_digest: str, data: bytes | bytearray | memoryview, executable: bool
    ) -> None:
        """Writes content whose digest is known."""
        path = self._staging.temporary()
        fd = durable.create(path, 0o555 if executable else 0o444)
        try:
            try:
                durable.write(fd, data)
                self._seal(fd, len(data))
            finally:
                os.close(fd)
        except BaseException:
            durable.forget(path)
            raise
        self._staging.add_blob(hex_digest, executable, path)

    def add_stream(self, source: BinaryIO, executable: bool, size: int = -1) -> File:
        """Stores what `source` yields; raises E-CONTENT-SIZE when `size` is given and not met."""
        head = _read_up_to(source, IN_MEMORY + 1 if size < 0 else min(size, IN_MEMORY) + 1)
        if len(head) <= IN_MEMORY and (size < 0 or len(head) <= size):
            _check_size(len(head), size)
            return File(Digest(self.add_bytes(head, executable)), len(head), executable)
        if 0 <= size < len(head):
            _check_size(len(head), size)
        return self._spool(head, source, executable, size)

    def _spool(self, head: bytes, source: BinaryIO, executable: bool, size: int) -> File:
        path = self._staging.temporary()
        fd = durable.create(path, 0o555 if executable else 0o444)
        try:
            try:
                hasher, total, data = new_hasher(), 0, head
                while data:
                    total += len(data)
                    if 0 <= size < total:
                        _check_size(total, size)
                    hasher.update(data)
                    durable.write(fd, data)
                    data = source.read(CHUNK)
                _check_size(total, size)
                self._seal(fd, total)
            finally:
                os.close(fd)
            hex_digest = hasher.hexdigest()
            if self.holds(hex_digest, executable, total):
                durable.forget(path)
            else:
                self._staging.add_blob(hex_digest, executable, path)
        except BaseException:
            durable.forget(path)
            raise
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

    @staticmethod
    def _seal(fd: int, size: int) -> None:
        if os.fstat(fd).st_size != size:
            raise OSError(errno.EIO, "the file system kept another number of bytes")
        durable.utime(fd)
        if size >= _WORTH_BEGINNING:
            durable.begin_writing_back(fd)


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


def _check_size(got: int, wanted: int) -> None:
    if wanted < 0 or got == wanted:
        return
    more = "more than " if got > wanted else ""
    raise ReprobuildError(
        "E-CONTENT-SIZE",
        f"the content has {got if not more else more + str(wanted)} bytes, not the promised "
        f"{wanted}",
        expected=wanted,
        got=got,
    )
