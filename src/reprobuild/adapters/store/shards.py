"""Looking at the objects of a shard (blobs/ab, trees/ab…), and hashing all blobs again.

The part of `verify` that takes time, and that other processes take a share of (crew.py): what is
found is kept in plain values, and little is imported.
"""

from __future__ import annotations

import os
from stat import S_ISREG

from blake3 import blake3

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.hashing import content_problem, open_quietly, read_and_hash
from reprobuild.adapters.store.helpers import Threads

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[[str, str, str, str], None]
    """Takes a problem: its kind, the object, the path and the reason."""

_LONG = 64 * 1024
"""Blobs of this many bytes and more are hashed by another thread."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_HEX = "0123456789abcdef"


def listing(directory: str) -> list[os.DirEntry[str]]:
    """A directory's entries by name; none when it is not there."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def objects(
    shard: str, say: Say, *, modes: bool
) -> Iterator[tuple[str, str, int, os.stat_result, str]]:
    """Name, path, descriptor, what it is and why it cannot be read, of all that lie right.

    The descriptor is the caller's to close; it is -1 for what cannot be opened. `modes`: whether
    there are executable ones, as among blobs.
    """
    where = os.path.basename(shard)
    home = os.open(shard, _DIRECTORY)
    try:
        for name in _names(shard, home, say):
            path = f"{shard}/{name}"
            plain = name.removesuffix(".x") if modes else name
            if len(plain) != 64 or plain.strip(_HEX) or name[:2] != where:
                say("misplaced", name, path, "not the store's")
                continue
            fd, why = -1, ""
            try:
                try:
                    fd = open_quietly(name, _READ, home)
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

    def say(self, kind: str, thing: str, path: str, reason: str) -> None:
        """Notes a problem."""
        self.problems.append((kind, thing, path, reason))

    def values(self) -> tuple[object, ...]:
        """All of it, for `add` on the other side."""
        return self.problems, self.blobs, self.inodes, self.count, self.bytes

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


class _Long:
    """A long blob that a thread hashes (helpers.Task)."""

    def __init__(self, found: Found, name: str, path: str, fd: int, info: os.stat_result) -> None:
        self._found, self._name, self._path, self._fd, self._info = found, name, path, fd, info
        self._reason = ""

    def run(self) -> None:
        try:
            digest, _ = read_and_hash(self._fd, self._info.st_size)
            if digest.hex() != self._name[:64]:
                self._reason = f"its content has the digest {digest.hex()}"
        except OSError as error:
            self._reason = f"unreadable: {error.strerror}"
        finally:
            os.close(self._fd)

    def drop(self) -> None:
        os.close(self._fd)

    def merge(self) -> None:
        _note(self._found, self._name, self._path, self._info, self._reason)


def check_shard(shard: str, found: Found, threads: Threads) -> None:
    """Hashes the blobs of a shard; what `threads` have in hand is noted when they settle."""
    blobs, inodes = found.blobs, found.inodes
    for name, path, fd, info, reason in objects(shard, found.say, modes=True):
        size = info.st_size
        found.count += 1
        found.bytes += size
        if info.st_mtime_ns != durable.EPOCH_NS:
            found.say("mode", name, path, "its modification time is not the constant")
        if info.st_nlink > 2:
            found.say("mode", name, path, f"{info.st_nlink} links instead of 1 or 2")
        if fd < 0:
            found.say("damaged", f"blob {name}", path, reason)
            continue
        if size >= _LONG:
            threads.hand_over(_Long(found, name, path, fd, info))
            continue
        data = b""
        try:
            data = os.read(fd, size + 1)
        except OSError:
            pass  # the second look says why
        finally:
            os.close(fd)
        if len(data) != size or blake3(data).hexdigest() != name[:64]:
            _note(found, name, path, info, content_problem(path, name[:64]))
            continue
        blobs[name] = size
        if info.st_nlink > 1:
            inodes[info.st_ino] = name


def _note(found: Found, name: str, path: str, info: os.stat_result, reason: str) -> None:
    if reason:
        found.say("damaged", f"blob {name}", path, reason)
        return
    found.blobs[name] = info.st_size
    if info.st_nlink > 1:
        found.inodes[info.st_ino] = name
