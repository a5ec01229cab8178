"""As which inodes blobs were read to their end, so that they need not be read again.

Content that is brought and is here already is not dropped before the blob has been read: a rebuild
must not confirm a rotten one. For a release that shares nearly everything with the last that is a
second reading of everything. So it is noted, under cache/seen/, which inode a blob was (device,
number, size, ctime) when it was last read in whole, or was named by the process that had written
it. ctime moves with any write, link and renaming, and cannot be set back, so what is that inode
still, with the mode and mtime of all blobs, has that content still. A copied store has other inodes
and reads again. What rots below the file system moves no time: `store verify` is for that, which
asks nobody but the files, and has what it found damaged forgotten here.

cache/seen/<ab> holds records of 64 bytes, appended and never synchronised: what is lost costs one
reading. A file whose size is no multiple of that is not read, and removed by who would append.
There are no checksums, since a record speaks of one inode at one moment: no bits that a crash or a
disk may put in its place speak of another that is there.
"""

from __future__ import annotations

import os
import time
from stat import S_IFREG, S_IMODE, S_ISREG
from struct import Struct

from reprobuild.adapters.store import durable

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_RECORD = Struct("<32sQQQQ")
"""Digest, device, inode, twice the size and one more for an executable blob, ctime in ns."""
_MODE_AT = 48
"""Where the byte with the executable bit is."""
_MOST_BYTES = 2**26
"""What is longer is not ours: a million records for each of 256 files."""
_MOST_WAITING = 1000
"""What is not settled when it is looked at is looked at again, if it is no more than that."""

_TICK_NS = 20 * 10**6
"""The kernel's times move every 1 to 10 ms: a later write may leave a younger ctime as it is."""
_COARSE_NS = 2 * 10**9
"""The same where a file system keeps seconds only."""

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Seen:
    """What was seen of a store's blobs; `home` is its cache/seen.

    Read as it is asked for, a file for each first byte of a digest; written by `keep`. Safe for
    threads: a note that two of them lose costs one reading.
    """

    def __init__(self, home: str) -> None:
        self.home = home
        self._known: dict[str, set[bytes]] = {}
        self._new: dict[str, bytearray] = {}
        self._waiting: list[tuple[str, bool, str, int]] = []

    def knows(self, hex_digest: str, executable: bool, info: os.stat_result) -> bool:
        """Whether the blob's file, which is `info` now, was that when it was last read."""
        if info.st_mtime_ns != durable.EPOCH_NS or info.st_mode != _mode(executable):
            return False
        known = self._known.get(hex_digest[:2])
        if known is None:
            known = self._known[hex_digest[:2]] = set(_records(f"{self.home}/{hex_digest[:2]}"))
        return _record(hex_digest, executable, info) in known

    def note(self, hex_digest: str, executable: bool, info: os.stat_result) -> None:
        """The blob's file was `info` before and after it was read in whole."""
        if settled(info.st_ctime_ns, time.time_ns()):
            self._note(hex_digest, _record(hex_digest, executable, info))

    def later(self, hex_digest: str, executable: bool, path: str, ctime_ns: int = -1) -> None:
        """The same for a file that was named or linked just now: it is looked at by `keep`, and
        has to have that ctime where one is given."""
        self._waiting.append((hex_digest, executable, path, ctime_ns))

    def _note(self, hex_digest: str, record: bytes) -> None:
        shard = hex_digest[:2]
        self._new.setdefault(shard, bytearray()).extend(record)
        known = self._known.get(shard)
        if known is not None:
            known.add(record)

    def taken(self) -> dict[str, bytearray]:
        """What was noted since, for `adopt` in another process: then it is not written here."""
        new, self._new = self._new, {}
        return new

    def adopt(self, new: Mapping[str, bytes]) -> None:
        """Notes what another process did."""
        for shard, records in new.items():
            self._new.setdefault(shard, bytearray()).extend(records)

    def keep(self) -> None:
        """Writes down what is new, as far as the disk takes it."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._waiting += self._unsettled(waiting)[-_MOST_WAITING:]
        if not self._new:
            return
        try:
            mode = _shared_mode(self.home)
            for shard, records in self.taken().items():
                _append(f"{self.home}/{shard}", records, mode)
        except OSError:
            return

    def _unsettled(
        self, waiting: Iterable[tuple[str, bool, str, int]]
    ) -> list[tuple[str, bool, str, int]]:
        young: list[tuple[str, bool, str, int]] = []
        now = time.time_ns()
        for hex_digest, executable, path, ctime_ns in waiting:
            try:
                info = os.stat(path, follow_symlinks=False)
            except OSError:
                continue
            if ctime_ns not in (-1, info.st_ctime_ns):
                continue
            if settled(info.st_ctime_ns, now):
                self._note(hex_digest, _record(hex_digest, executable, info))
            else:
                young.append((hex_digest, executable, path, info.st_ctime_ns))
        return young


def _mode(executable: bool) -> int:
    return S_IFREG | (0o555 if executable else 0o444)


def _record(hex_digest: str, executable: bool, info: os.stat_result) -> bytes:
    size = 2 * info.st_size + executable
    ctime = info.st_ctime_ns % 2**64  # a broken inode may say anything
    return _RECORD.pack(bytes.fromhex(hex_digest), info.st_dev, info.st_ino, size, ctime)


def settled(ctime_ns: int, now_ns: int) -> bool:
    """Whether any write from `now_ns` on (nanoseconds since the epoch) moves a ctime."""
    return ctime_ns + (_TICK_NS if ctime_ns % 10**9 else _COARSE_NS) < now_ns


def _records(path: str) -> list[bytes]:
    """A file's records; none when it is not there, or not as it should be."""
    try:
        fd = os.open(path, _READ)
    except OSError:
        return []
    try:
        info = os.fstat(fd)
        if not S_ISREG(info.st_mode) or info.st_size > _MOST_BYTES:
            return []
        data = os.read(fd, info.st_size)
    except OSError:
        return []
    finally:
        os.close(fd)
    step = _RECORD.size
    return (
        [data[at : at + step] for at in range(0, len(data), step)] if not len(data) % step else []
    )


def _shared_mode(home: str) -> int:
    """Makes the directory, and says what mode its files have: where accounts of a group share the
    store, each notes for all."""
    durable.ensure_directory(home)
    return 0o664 if durable.is_shared(home) else 0o644


def _append(path: str, records: bytearray, mode: int) -> None:
    fd = durable.open_to_append(path, mode)
    try:
        info = os.fstat(fd)
        if not info.st_size and S_IMODE(info.st_mode) != mode:  # the umask
            durable.fchmod(fd, mode)
        whole = not info.st_size % _RECORD.size and info.st_size < _MOST_BYTES
        if whole and durable.write_some(fd, records) == len(records):
            return
    finally:
        os.close(fd)
    durable.forget(path)


def forget(home: str, hex_digest: str) -> None:
    """Forgets a blob, and those whose digests begin as its does."""
    durable.forget(f"{home}/{hex_digest[:2]}")


def tidy(home: str, temporary: str, alive: Callable[[bytes], bool]) -> None:
    """Drops what was said of blobs that are no more, and what was said of others before.

    `alive` is asked with a digest's 32 bytes, and an `x` for an executable blob. `temporary` is a
    free name in the same file system. Nobody else has the store meanwhile. Raises OSError.
    """
    try:
        names = os.listdir(home)
    except OSError:
        return
    for name in names:
        path = f"{home}/{name}"
        records = _records(path)
        kept: dict[bytes, bytes] = {}
        for record in records:
            blob = record[:32] + (b"x" if record[_MODE_AT] & 1 else b"")
            if alive(blob):
                kept[blob] = record
        if not kept:
            durable.forget(path)
        elif len(kept) < len(records) * 3 // 4:  # else it is not worth a write
            _write_anew(path, temporary, b"".join(kept.values()))


def _write_anew(path: str, temporary: str, data: bytes) -> None:
    fd = durable.create(temporary, S_IMODE(os.stat(path).st_mode))
    try:
        durable.write(fd, data)
        durable.rename(temporary, path)
    except OSError:
        durable.forget(temporary)
        raise
    finally:
        os.close(fd)
