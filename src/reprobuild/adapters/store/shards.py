"""Looking at the objects of a shard (blobs/ab, trees/ab…), and hashing all blobs again.

The part of `verify` that takes time, and that other processes take a share of (crew.py): what is
found is kept in plain values, and little is imported.
"""

from __future__ import annotations

import os
from stat import S_IFREG, S_ISREG

from blake3 import blake3

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.hashing import content_problem, open_quietly, read_and_hash
from reprobuild.adapters.store.reading import READ

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reprobuild.adapters.store.verify_report import Report

    Say = Callable[[str, str, str, str], None]
    """Takes a problem: its kind, the object, the path and the reason."""

OVERHEAD = 32 * 1024
"""What a blob takes beside its content, as bytes that take as long."""
_LONG = 64 * 1024
"""Blobs of this many bytes and more are read in pieces."""
_QUIETLY = READ | os.O_NOATIME  # for the owner alone; others look closely
MANY_LINKS = " links instead of 1 or 2"
"""Ends the reason of such a problem: it may pass, while somebody materialises."""
_PLAIN, _EXECUTABLE = S_IFREG | 0o444, S_IFREG | 0o555
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_HEX = "0123456789abcdef"


def listing(directory: str) -> list[os.DirEntry[str]]:
    """A directory's entries by name; none when it is not there."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_empty(directory: str) -> bool:
    """Whether nothing lies in a directory, or it is not there."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is None
    except (FileNotFoundError, NotADirectoryError):
        return True


def shards(home: str, say: Say) -> list[str]:
    """The paths of a directory's shards."""
    paths: list[str] = []
    for shard in listing(home):
        if len(shard.name) == 2 and shard.is_dir(follow_symlinks=False):
            paths.append(shard.path)
        else:
            say("misplaced", shard.name, shard.path, "not the store's")
    return paths


def read(fd: int, size: int, why: str) -> tuple[bytes, str]:
    """All that an open object holds, and why it could not be read."""
    if fd < 0:
        return b"", why
    try:
        with open(fd, "rb", buffering=0) as file:
            data = file.read(size + 1)
            while more := file.read(2**20):
                data += more
    except OSError as error:
        return b"", f"unreadable: {error.strerror}"
    return data, ""


def objects(
    shard: str, say: Say, *, modes: bool, names: list[str] | None = None
) -> Iterator[tuple[str, str, int, os.stat_result, str]]:
    """Name, path, descriptor, what it is and why it cannot be read, of all that lie right.

    The descriptor is the caller's to close; it is -1 for what cannot be opened. `modes`: whether
    there are executable ones, as among blobs. `names`: these alone.
    """
    where = os.path.basename(shard)
    home = os.open(shard, _DIRECTORY)
    try:
        for name in _names(shard, home, say) if names is None else names:
            path = f"{shard}/{name}"
            plain = name.removesuffix(".x") if modes else name
            if len(plain) != 64 or plain.strip(_HEX) or name[:2] != where:
                say("misplaced", name, path, "not the store's")
                continue
            fd, why = -1, ""
            try:
                try:
                    fd = open_quietly(name, READ, home)
                    info = os.fstat(fd)
                except OSError as error:
                    why = f"unreadable: {error.strerror}"
                    info = os.stat(name, dir_fd=home, follow_symlinks=False)
            except FileNotFoundError:
                continue  # somebody removed it since
            if not S_ISREG(info.st_mode):
                if fd >= 0:
                    os.close(fd)
                say("misplaced", name, path, "not the store's")
                continue
            wanted = 0o444 if plain == name else 0o555
            mode = info.st_mode & 0o7777
            if mode != wanted:
                say("mode", name, path, f"mode {mode:04o} instead of {wanted:04o}")
            yield name, path, fd, info, why
    finally:
        os.close(home)


def _names(shard: str, home: int, say: Say) -> list[str]:
    """The names of a directory's files, in order; what else lies there is not the store's."""
    names: list[str] = []
    with os.scandir(home) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            else:
                say("misplaced", entry.name, f"{shard}/{entry.name}", "not the store's")
    names.sort()
    return names


class Found:
    """What was seen of the blobs."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str, str, str]] = []
        self.blobs: dict[str, int] = {}
        """`<hex>` or `<hex>.x` of good ones → size."""
        self.inodes: dict[int, str] = {}
        """Inodes of good ones with a second link → their key in `blobs`."""
        self.count = 0
        self.bytes = 0

    @property
    def weight(self) -> int:
        """What it took to look at them, as bytes that take as long."""
        return self.bytes + self.count * OVERHEAD

    def say(self, kind: str, thing: str, path: str, reason: str) -> None:
        """Notes a problem."""
        self.problems.append((kind, thing, path, reason))

    def values(self) -> tuple[object, ...]:
        """All of it, for `add` on the other side."""
        return self.problems, self.blobs, self.inodes, self.count, self.bytes

    def tell(self, report: Report) -> None:
        """Adds what was seen to a report."""
        for problem in self.problems:
            report.say(*problem)
        report.blobs += self.count
        report.bytes += self.bytes

    def add(self, values: tuple[object, ...]) -> None:
        """What `values` of another gave."""
        problems, blobs, inodes, count, size = values
        assert isinstance(problems, list) and isinstance(blobs, dict) and isinstance(inodes, dict)
        assert isinstance(count, int) and isinstance(size, int)
        self.problems += problems
        self.blobs.update(blobs)
        self.inodes.update(inodes)
        self.count += count
        self.bytes += size


def check_shard(shard: str, found: Found) -> None:
    """Hashes the blobs of a shard.

    Half of what many short blobs take is Python: those that are as they should be, which is nearly
    all, pass one loop with few calls, and the rest are looked at closely.
    """
    blobs, inodes = found.blobs, found.inodes
    where, home = os.path.basename(shard), os.open(shard, _DIRECTORY)
    count = total = 0
    odd: list[str] = []
    try:
        for name in _names(shard, home, found.say):
            try:
                fd = os.open(name, _QUIETLY, dir_fd=home)
            except OSError:
                odd.append(name)
                continue
            try:
                info = os.fstat(fd)
                size = info.st_size
                if (
                    info.st_mode != (_EXECUTABLE if name[64:] else _PLAIN)
                    or info.st_mtime_ns != durable.EPOCH_NS
                    or info.st_nlink > 2
                ):
                    odd.append(name)
                    continue
                if size < _LONG:
                    data = os.read(fd, size + 1)
                    digest, done = blake3(data).hexdigest(), len(data)
                else:
                    raw, done = read_and_hash(fd, size)
                    digest = raw.hex()
            except OSError:
                odd.append(name)
                continue
            finally:
                os.close(fd)
            if done != size or name not in (digest, digest + ".x") or name[:2] != where:
                odd.append(name)
                continue
            count += 1
            total += size
            blobs[name] = size
            if info.st_nlink > 1:
                inodes[info.st_ino] = name
    finally:
        os.close(home)
    found.count += count
    found.bytes += total
    if odd:
        closely(shard, odd, found)


def closely(shard: str, names: list[str], found: Found) -> None:
    """The same for some blobs, of which it says what is off with them."""
    for name, path, fd, info, why in objects(shard, found.say, modes=True, names=names):
        reason = why
        found.count += 1
        found.bytes += info.st_size
        if info.st_mtime_ns != durable.EPOCH_NS:
            found.say("mode", name, path, "its modification time is not the constant")
        if info.st_nlink > 2:
            found.say("mode", name, path, f"{info.st_nlink}{MANY_LINKS}")
        if fd >= 0:
            os.close(fd)
            reason = content_problem(path, name[:64], info.st_size)
        if reason:
            found.say("damaged", f"blob {name}", path, reason)
            continue
        found.blobs[name] = info.st_size
        if info.st_nlink > 1:
            found.inodes[info.st_ino] = name
