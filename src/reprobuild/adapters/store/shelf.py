"""Adding blobs that are named by hex digits: the part of `blobs.py` that imports little.

Who captures a tree needs no more, in a process of its own (apart.py) as well as here.
"""

from __future__ import annotations

import errno
import os
from stat import S_IMODE

from blake3 import blake3

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.faults import damaged
from reprobuild.adapters.store.hashing import content_problem, open_quietly
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO, Protocol

    from reprobuild.adapters.store.seen import Seen

    class Pending(Protocol):
        """What a shelf needs of `Staging`."""

        @property
        def seen(self) -> Seen: ...

        def temporary(self) -> str: ...
        def blob(self, hex_digest: str, executable: bool) -> str | None: ...
        def add_blob(self, hex_digest: str, executable: bool, path: str) -> None: ...
        def touch(self, path: str) -> None: ...


CHUNK = 2**20
IN_MEMORY = 8 * 2**20
"""Content up to this size is hashed before anything is written: what is here costs no write."""

_PIECE = 2**16
"""What content is compared by, in bytes: it stays in a core's cache, and fresh memory of this size
comes from the allocator's heap, not from the kernel."""
_WORTH_BEGINNING = 64 * 1024
"""The disk may begin with content of so many bytes while the next is read and hashed."""
_WRITE_BACK = 8 * 2**20
"""How much of a long stream is written, in bytes, before the disk begins with it: all of it at the
end kept a layer of 130 MB waiting for 60 to 100 ms while the cores had nothing left to do."""
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Shelf:
    """Where a store's blobs are put; `place` gives a blob's file by its digest and mode."""

    def __init__(self, staging: Pending, place: Callable[[str, bool], str]) -> None:
        self._staging = staging
        self._place = place
        self._confirmed: set[str] = set()
        self.spared = False
        """Whether the last content that was asked for is here, and did not have to be read."""

    def present(self, hex_digest: str, executable: bool, size: int) -> bool:
        """Whether the blob is here; raises E-STORE-DAMAGED for another size or content.

        The content is read where the file's time or mode is not what every blob has: something
        has written to it. Who brings the content asks `holds`.
        """
        return self._find(hex_digest, executable, size, None, read=False)

    def holds(
        self,
        hex_digest: str,
        executable: bool,
        size: int,
        data: bytes | bytearray | memoryview | None = None,
    ) -> bool:
        """`present`, with the content read unless the file is what it was at its last reading.

        To be asked before content in hand is dropped because it is here already: a rebuild must
        not confirm a blob that rotted. `data` is that content, where it is in memory: comparing
        takes a third of the time of hashing.
        """
        return self._find(hex_digest, executable, size, data, read=True)

    def _find(
        self,
        hex_digest: str,
        executable: bool,
        size: int,
        data: bytes | bytearray | memoryview | None,
        *,
        read: bool,
    ) -> bool:
        if self._staging.blob(hex_digest, executable) is not None:
            return True
        path = self._place(hex_digest, executable)
        try:
            info = os.stat(path, follow_symlinks=False)
        except OSError as error:
            if error.errno in _ABSENT:
                self.spared = False
                return self._staging.blob(hex_digest, executable) is not None
            raise damaged("blob", hex_digest, path, f"unreadable: {error.strerror}") from error
        if info.st_size != size:
            reason = f"{info.st_size} bytes instead of {size}"
            raise damaged("blob", hex_digest, path, reason)
        if read or _touched(info, executable):
            self.spared = path in self._confirmed or self._staging.seen.knows(
                hex_digest, executable, info
            )
            if not self.spared:
                self._confirm(hex_digest, executable, path, info, data)
        self._staging.touch(path)
        return True

    def _confirm(
        self,
        hex_digest: str,
        executable: bool,
        path: str,
        before: os.stat_result,
        data: bytes | bytearray | memoryview | None,
    ) -> None:
        if data is None or not _is_content(path, data):
            reason = content_problem(path, hex_digest, before.st_size)
            if reason:
                raise damaged("blob", hex_digest, path, reason)
        self._confirmed.add(path)
        after = os.stat(path, follow_symlinks=False)
        if (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns):
            self._staging.seen.note(hex_digest, executable, after)

    def stage(
        self, hex_digest: str, data: bytes | bytearray | memoryview, executable: bool
    ) -> None:
        """Writes content whose digest is known."""
        path = self._staging.temporary()
        fd = durable.create(path, 0o555 if executable else 0o444)
        try:
            try:
                durable.write(fd, data)
                _seal(fd, len(data))
            finally:
                os.close(fd)
        except BaseException:
            durable.forget(path)
            raise
        self._staging.add_blob(hex_digest, executable, path)

    def spool(
        self, head: bytes, source: BinaryIO, executable: bool, size: int = -1
    ) -> tuple[str, int]:
        """Stores `head` and what else `source` yields, as it comes; its digest and size.

        Raises E-CONTENT-SIZE when `size` is given and not met.
        """
        path = self._staging.temporary()
        fd = durable.create(path, 0o555 if executable else 0o444)
        try:
            try:
                hasher, total, begun = blake3(), 0, 0
                data = head or source.read(CHUNK)
                while data:
                    total += len(data)
                    if 0 <= size < total:
                        check_size(total, size)
                    hasher.update(data)
                    durable.write(fd, data)
                    if total - begun >= _WRITE_BACK:
                        durable.begin_writing_back(fd)
                        begun = total
                    data = source.read(CHUNK)
                check_size(total, size)
                _seal(fd, total)
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
        return hex_digest, total


def check_size(got: int, wanted: int) -> None:
    """Raises E-CONTENT-SIZE where `wanted` bytes were promised (it is not negative)."""
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


def _touched(info: os.stat_result, executable: bool) -> bool:
    """Whether a blob's time or mode is another than all have."""
    mode = 0o555 if executable else 0o444
    return info.st_mtime_ns != durable.EPOCH_NS or S_IMODE(info.st_mode) != mode


def _is_content(path: str, data: bytes | bytearray | memoryview) -> bool:
    """Whether a file holds just `data`; what cannot be read does not."""
    try:
        fd = open_quietly(path, _READ)
        try:
            return _holds(fd, data)
        finally:
            os.close(fd)
    except OSError:
        return False


def _holds(fd: int, data: bytes | bytearray | memoryview) -> bool:
    size = len(data)
    if isinstance(data, bytes) and size < _PIECE:
        return os.read(fd, size + 1) == data
    done = 0
    while done < size:
        piece = os.read(fd, min(_PIECE, size - done))
        if not piece or piece != bytes(data[done : done + len(piece)]):
            return False
        done += len(piece)
    return not os.read(fd, 1)


def _seal(fd: int, size: int) -> None:
    if os.fstat(fd).st_size != size:
        raise OSError(errno.EIO, "the file system kept another number of bytes")
    durable.utime(fd)
    if size >= _WORTH_BEGINNING:
        durable.begin_writing_back(fd)
