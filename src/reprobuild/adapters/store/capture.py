"""Taking a directory of the disk as a tree.

The directory may be what a hostile build left and may still be changing: every step goes through
descriptors, links are read and never followed, and what changes while it is read is an error.
A blob's name comes from the very bytes that were written, so even an unnoticed change can only
give a tree of what was seen, never a blob under a wrong name.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.adapters.store.blobs import IN_MEMORY, Blobs, digest_hex, new_hasher
from reprobuild.adapters.store.dirstack import DIRECTORY, DirStack, MovedError
from reprobuild.adapters.store.trees import Trees
from reprobuild.core.digest import Digest
from reprobuild.core.tree import MAX_DEPTH, Directory, Entry, File, Symlink, Tree, check_depth
from reprobuild.errors import ReprobuildError

PARALLEL_FROM = 128 * 1024
"""Files of this many bytes and more are read and hashed by several threads."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Frame:
    name: bytes
    before: os.stat_result
    entries: dict[bytes, Entry] = field(default_factory=dict)
    below: list[bytes] = field(default_factory=list)


_MOST_LATER = 64
_Later = tuple[bytes, "Future[File]", int]
"""A file that another thread takes: its name, what it will be, and its descriptor."""


def _settle(frame: _Frame, later: deque[_Later]) -> None:
    """Waits for the one that was put off first."""
    name, promise, _ = later[0]
    frame.entries[name] = promise.result()
    later.popleft()


class _Local(threading.local):
    """A thread's own buffer: fresh memory for each file costs more than reading it."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(64 * 1024))

    def buffer(self, size: int) -> memoryview:
        """At least `size` bytes, to be used up before the next call."""
        if size > len(self._memory):
            self._memory = memoryview(
                bytearray(min(max(size, 2 * len(self._memory)), IN_MEMORY + 1))
            )
        return self._memory


class Capture:
    """One capture: `run` once."""

    def __init__(self, blobs: Blobs, trees: Trees, directory: Path, limit: int) -> None:
        self._blobs = blobs
        self._trees = trees
        self._directory = directory
        self._limit = limit
        self._total = 0
        self._local = _Local()
        self._pool: ThreadPoolExecutor | None = None
        self._frames: list[_Frame] = []

    def run(self) -> Digest:
        """The tree's digest; raises E-OUTPUT-…, E-TREE (too deep), E-STORE-…."""
        try:
            return self._run()
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)

    def _run(self) -> Digest:
        try:
            root, info = self._open_directory(os.fsencode(self._directory), None)
        except OSError as error:
            raise self._unreadable(b"", error) from error
        with DirStack(root) as stack:
            self._enter(b"", root, info)
            while True:
                frame = self._frames[-1]
                if frame.below:
                    name = frame.below.pop()
                    self._descend(stack, name)
                    continue
                digest = self._leave(stack.top, frame)
                if not self._frames:
                    return digest
                try:
                    stack.pop()
                except (MovedError, OSError) as error:
                    raise self._changed(b"") from error
                self._frames[-1].entries[frame.name] = Directory(digest)

    def _descend(self, stack: DirStack, name: bytes) -> None:
        if stack.depth >= MAX_DEPTH:
            check_depth(stack.depth + 1, self._shown(name))
        try:
            fd, info = self._open_directory(name, stack.top)
        except NotADirectoryError as error:
            raise self._changed(name) from error
        except OSError as error:
            raise self._unreadable(name, error) from error
        stack.push(fd)
        self._enter(name, fd, info)

    def _enter(self, name: bytes, fd: int, info: os.stat_result) -> None:
        frame = _Frame(name, info)
        self._frames.append(frame)
        later: deque[_Later] = deque()
        try:
            with os.scandir(fd) as listing:
                for item in listing:
                    child = os.fsencode(item.name)
                    if item.is_file(follow_symlinks=False):
                        self._file(frame, later, fd, child)
                    elif item.is_dir(follow_symlinks=False):
                        frame.below.append(child)
                    elif item.is_symlink():
                        frame.entries[child] = self._link(fd, child)
                    else:
                        raise self._special(child, os.stat(child, dir_fd=fd, follow_symlinks=False))
            while later:
                _settle(frame, later)
        except BaseException:
            for _, promise, opened in later:
                if promise.cancel():
                    os.close(opened)
            raise

    def _leave(self, fd: int, frame: _Frame) -> Digest:
        after = os.fstat(fd)
        if (after.st_mtime_ns, after.st_ctime_ns) != (
            frame.before.st_mtime_ns,
            frame.before.st_ctime_ns,
        ):
            raise self._changed(b"")
        self._frames.pop()
        return self._trees.add(Tree.of(frame.entries))

    def _link(self, fd: int, name: bytes) -> Symlink:
        try:
            return Symlink(os.readlink(name, dir_fd=fd))
        except OSError as error:
            raise self._changed(name) from error

    def _file(self, frame: _Frame, later: deque[_Later], directory: int, name: bytes) -> None:
        """Takes a file; one that is long enough to be worth another thread is put off."""
        try:
            fd, before, mode = self._open_file(directory, name)
        except OSError as error:
            raise self._unreadable(name, error) from error
        handed_over = False
        try:
            if not stat.S_ISREG(before.st_mode):
                raise self._special(name, before)
            self._count(before.st_size, name)
            executable = bool(mode & stat.S_IXUSR)
            if before.st_size < PARALLEL_FROM:
                hex_digest = self._small(fd, name, before, executable)
                frame.entries[name] = File(Digest(hex_digest), before.st_size, executable)
                return
            if len(later) >= _MOST_LATER:
                _settle(frame, later)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "capture")
            later.append((name, self._pool.submit(self._content, fd, name, before, executable), fd))
            handed_over = True
        finally:
            if not handed_over:
                os.close(fd)

    def _content(self, fd: int, name: bytes, before: os.stat_result, executable: bool) -> File:
        try:
            take = self._small if before.st_size <= IN_MEMORY else self._large
            return File(Digest(take(fd, name, before, executable)), before.st_size, executable)
        finally:
            os.close(fd)

    def _small(self, fd: int, name: bytes, before: os.stat_result, executable: bool) -> str:
        size = before.st_size
        buffer = self._local.buffer(size + 1)
        try:
            # One byte more than there should be: a file that grew is noticed. A regular file
            # gives less than it is asked for at its end alone.
            done = os.readv(fd, [buffer[: size + 1]])
            while done < size and (count := os.readv(fd, [buffer[done : size + 1]])):
                done += count
        except OSError as error:
            raise self._unreadable(name, error) from error
        self._check_unchanged(fd, name, before, done)
        data = buffer[:size]
        hex_digest = digest_hex(data)
        if not self._blobs.holds(hex_digest, executable, size):
            self._blobs.stage(hex_digest, data, executable)
        return hex_digest

    def _large(self, fd: int, name: bytes, before: os.stat_result, executable: bool) -> str:
        # Hashed first: what is here already then costs no write. What is not is read again from
        # the page cache and named by what that second reading yields.
        hasher, total = new_hasher(), 0
        buffer = self._local.buffer(IN_MEMORY)
        try:
            while count := os.readv(fd, [buffer]):
                hasher.update(buffer[:count])
                total += count
        except OSError as error:
            raise self._unreadable(name, error) from error
        self._check_unchanged(fd, name, before, total)
        hex_digest = hasher.hexdigest()
        if self._blobs.holds(hex_digest, executable, total):
            return hex_digest
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, "rb", buffering=0, closefd=False) as source:
            stored = self._blobs.add_stream(source, executable)
        if stored.digest.hex != hex_digest or stored.size != total:
            raise self._changed(name)
        return hex_digest

    def _check_unchanged(self, fd: int, name: bytes, before: os.stat_result, read: int) -> None:
        after = os.fstat(fd)
        if read != before.st_size or (
            after.st_size,
            after.st_mtime_ns,
            after.st_ctime_ns,
        ) != (before.st_size, before.st_mtime_ns, before.st_ctime_ns):
            raise self._changed(name)

    def _count(self, size: int, name: bytes) -> None:
        self._total += size
        if self._total > self._limit:
            raise ReprobuildError(
                "E-OUTPUT-SIZE",
                f"{self._directory} holds more than {self._limit} bytes",
                path=self._shown(name),
                limit=self._limit,
            )

    # -- opening, also what its owner made unreadable ------------------------------------------

    def _open_file(self, directory: int, name: bytes) -> tuple[int, os.stat_result, int]:
        try:
            fd = os.open(name, _FILE, dir_fd=directory)
        except PermissionError:
            fd, mode = self._open_closed(name, directory, _FILE, stat.S_IRUSR)
            return fd, os.fstat(fd), mode
        info = os.fstat(fd)
        return fd, info, info.st_mode

    def _open_directory(self, name: bytes, directory: int | None) -> tuple[int, os.stat_result]:
        try:
            fd = os.open(name, DIRECTORY, dir_fd=directory)
        except PermissionError:
            fd, _ = self._open_closed(name, directory, DIRECTORY, stat.S_IRWXU)
        info = os.fstat(fd)
        if info.st_mode & stat.S_IRWXU != stat.S_IRWXU and os.geteuid() != 0:
            if info.st_uid == os.geteuid():
                os.fchmod(fd, stat.S_IRWXU)  # readable, but its names cannot be opened
            info = os.fstat(fd)
        return fd, info

    @staticmethod
    def _open_closed(
        name: bytes, directory: int | None, flags: int, needed: int
    ) -> tuple[int, int]:
        # O_PATH pins the inode, so the mode that changes is that of the very file, not of what
        # a link put in its place leads to.
        pinned = os.open(name, _PATH, dir_fd=directory)
        try:
            info = os.fstat(pinned)
            if info.st_uid != os.geteuid() or stat.S_ISLNK(info.st_mode):
                raise PermissionError(13, "not readable, and another user's")
            there = f"/proc/self/fd/{pinned}"
            os.chmod(there, stat.S_IMODE(info.st_mode) | needed)
            return os.open(there, flags & ~os.O_NOFOLLOW), info.st_mode
        finally:
            os.close(pinned)

    # -- errors --------------------------------------------------------------------------------

    def _shown(self, name: bytes) -> str:
        parts = [frame.name for frame in self._frames if frame.name]
        if name and name != os.fsencode(self._directory):
            parts.append(name)
        path = b"/".join((os.fsencode(self._directory), *parts))
        return path.decode("utf-8", "backslashreplace")

    def _special(self, name: bytes, info: os.stat_result) -> ReprobuildError:
        kinds = {
            stat.S_IFSOCK: "a socket",
            stat.S_IFIFO: "a FIFO",
            stat.S_IFBLK: "a block device",
            stat.S_IFCHR: "a character device",
        }
        kind = kinds.get(stat.S_IFMT(info.st_mode), "of another kind than before")
        path = self._shown(name)
        return ReprobuildError(
            "E-OUTPUT-SPECIAL", f"{path} is {kind}; a tree holds none", path=path, kind=kind
        )

    def _changed(self, name: bytes) -> ReprobuildError:
        path = self._shown(name)
        return ReprobuildError(
            "E-OUTPUT-CHANGED", f"{path} changed while it was being read", path=path
        )

    def _unreadable(self, name: bytes, error: OSError) -> ReprobuildError:
        path = self._shown(name)
        return ReprobuildError("E-OUTPUT-READ", f"cannot read {path}: {error.strerror}", path=path)
