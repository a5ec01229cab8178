"""Whether a materialised tree or blob still is what it was made as.

A build mounts what lies under materialised/ and takes it for its input, so what was made by an
earlier run is looked at once a process before it is handed out: every name, kind, link, mode and
time, and every byte. That costs one reading, so a fingerprint of all inodes (number, size, mode,
times) is kept under cache/made/; ctime moves with any write, and cannot be set back, so a tree
whose fingerprint is the same needs no second reading. What rots below the file system moves no
time: `store verify` is for that.
"""

from __future__ import annotations

import marshal
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.dirstack import DIRECTORY, DirStack, MovedError
from reprobuild.adapters.store.hashing import content_problem
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.seen import settled
from reprobuild.adapters.store.staging import Staging
from reprobuild.adapters.store.trees import Trees
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, Entry, File, Symlink

_SETTLED_NS = 2 * 10**9
"""A write this soon after a look may leave the times as they were: then no fingerprint is kept."""


class _Unsound(Exception):
    """Something is not as it was made."""


class MadeCheck:
    """Looks at what lies under materialised/."""

    def __init__(self, staging: Staging, trees: Trees) -> None:
        self._staging = staging
        self._trees = trees
        self._home = staging.layout.directory("cache") / "made"
        self._seen: dict[str, bytes] = {}
        """Fingerprints of what this process looked at or made, by name."""

    def sound(self, path: Path, entry: Directory | File) -> bool:
        """Whether `path` holds exactly `entry`; remembers the answer by fingerprint.

        Raises E-STORE-MISSING or E-STORE-DAMAGED for a directory node that cannot be read.
        """
        try:
            before, newest = _fingerprint(path)
            if before in (self._seen.get(path.name), self._remembered(path.name)):
                self._seen[path.name] = before
                return True
            if isinstance(entry, Directory):
                self._tree(path, entry.digest)
            else:
                _file(str(path), os.lstat(path), entry)
            after, _ = _fingerprint(path)
        except (_Unsound, MovedError, OSError):
            return False
        if after != before:
            return False
        if settled(newest, time.time_ns()):
            self._seen[path.name] = before
        if newest + _SETTLED_NS < time.time_ns():
            self._remember(path.name, before)
        return True

    def note(self, path: Path) -> None:
        """Takes what this process has just made as it is."""
        with suppress(OSError):
            self._seen[path.name], _ = _fingerprint(path)

    def _tree(self, path: Path, digest: Digest) -> None:
        inodes: set[int] = set()
        with DirStack(os.open(path, DIRECTORY)) as stack:
            frames = [self._directory(stack.top, digest, inodes)]
            while frames:
                if frames[-1]:
                    name, child = frames[-1].pop()
                    stack.push(os.open(name, DIRECTORY, dir_fd=stack.top))
                    frames.append(self._directory(stack.top, child, inodes))
                    continue
                frames.pop()
                if frames:
                    stack.pop()

    def _directory(self, fd: int, digest: Digest, inodes: set[int]) -> list[tuple[bytes, Digest]]:
        _constant(os.fstat(fd), 0o555)
        entries = self._trees.get(digest).entries
        if sorted(os.fsencode(name) for name in os.listdir(fd)) != [name for name, _ in entries]:
            raise _Unsound
        below: list[tuple[bytes, Digest]] = []
        for name, entry in entries:
            if isinstance(entry, Directory):
                below.append((name, entry.digest))
                continue
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            _leaf(fd, name, info, entry)
            if isinstance(entry, File):
                if info.st_ino in inodes:
                    raise _Unsound
                inodes.add(info.st_ino)
        return below

    # -- what was seen -------------------------------------------------------------------------

    def _remembered(self, name: str) -> bytes:
        try:
            return read_file(self._home / name)
        except OSError:
            return b""

    def _remember(self, name: str, fingerprint: bytes) -> None:
        # Losing it costs one reading, so neither a sync nor a failure matters.
        with suppress(OSError):
            durable.ensure_directory(self._home)
            temporary = self._staging.temporary()
            fd = durable.create(temporary)
            try:
                durable.write(fd, fingerprint)
            finally:
                os.close(fd)
            durable.rename(temporary, self._home / name)


def _leaf(fd: int, name: bytes, info: os.stat_result, entry: Entry) -> None:
    if isinstance(entry, Symlink):
        if not stat.S_ISLNK(info.st_mode) or os.readlink(name, dir_fd=fd) != entry.target:
            raise _Unsound
    elif isinstance(entry, File):
        _file(f"/proc/self/fd/{fd}/{os.fsdecode(name)}", info, entry)


def _file(path: str, info: os.stat_result, entry: File) -> None:
    if not stat.S_ISREG(info.st_mode) or info.st_size != entry.size or info.st_nlink > 2:
        raise _Unsound
    _constant(info, 0o555 if entry.executable else 0o444)
    if content_problem(path, entry.digest.hex):
        raise _Unsound


def _constant(info: os.stat_result, mode: int) -> None:
    if stat.S_IMODE(info.st_mode) != mode or info.st_mtime_ns != durable.EPOCH_NS:
        raise _Unsound


def _fingerprint(path: Path) -> tuple[bytes, int]:
    """A digest of the inodes of everything at `path`, and the newest of their ctimes.

    All that a build pays, the first time in a process, for never being given a damaged input:
    two calls of Python's an inode, and one update of the digest a directory.
    """
    top = os.lstat(path)
    seen = _Seen()
    seen.update([_row("", top)])
    if not stat.S_ISDIR(top.st_mode):
        return seen.digest(), seen.newest
    with DirStack(os.open(path, DIRECTORY)) as stack:
        frames = [seen.directory(stack.top)]
        while frames:
            if not frames[-1]:
                frames.pop()
                if frames:
                    stack.pop()
                continue
            stack.push(os.open(frames[-1].pop(), DIRECTORY, dir_fd=stack.top))
            frames.append(seen.directory(stack.top))
    return seen.digest(), seen.newest


_Row = tuple[str, int, int, int, int, int, int]


def _row(name: str, info: os.stat_result) -> _Row:
    return (
        name,
        info.st_dev,
        info.st_ino,
        info.st_size,
        info.st_mode,
        info.st_mtime_ns,
        info.st_ctime_ns,
    )


class _Seen:
    """The digest of a walk: of each directory its rows, in the order of the walk."""

    def __init__(self) -> None:
        self._hasher = blake3()
        self.digest = self._hasher.digest
        self.newest = 0
        """The newest ctime."""

    def update(self, rows: list[_Row]) -> None:
        """The next directory's rows."""
        # Of lists, tuples, numbers and text, version 2 makes the same bytes everywhere, and says
        # how many there are: one sequence of updates has one meaning.
        self._hasher.update(marshal.dumps(rows, 2))
        self.newest = max(self.newest, *[row[-1] for row in rows]) if rows else self.newest

    def directory(self, fd: int) -> list[str]:
        """Looks at what lies in a directory; the directories among it, the last one first."""
        rows: list[_Row] = []
        below: list[str] = []
        for name in sorted(os.listdir(fd)):
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            mode = info.st_mode
            rows.append(
                (
                    name,
                    info.st_dev,
                    info.st_ino,
                    info.st_size,
                    mode,
                    info.st_mtime_ns,
                    info.st_ctime_ns,
                )
            )
            if mode & 0o170000 == stat.S_IFDIR:
                below.append(name)
        self.update(rows)
        below.reverse()
        return below
