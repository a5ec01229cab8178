"""Reading a directory of the disk as a tree: the walk below `capture` and `tree_digest`.

The directory may be what a hostile build left and may still be changing: every step goes through
descriptors, links are read and never followed, and what changes while it is read is an error: a
file's times and size, and a directory's times, are looked at before and after.

In a tree that is worth it, processes for the other cores take their share (parts.py). Threads
would not do: the walk lets go of the interpreter's lock at every system call, and then has to wake
up for it again, which takes longer than the call. A short file costs some five of them, and
around them every call of Python's counts: hence entries that are bytes (core/node.py), one long
method, and no import that who only hashes would have to wait for.
"""

from __future__ import annotations

import os
import sys
from stat import (
    S_IFBLK,
    S_IFCHR,
    S_IFIFO,
    S_IFMT,
    S_IFREG,
    S_IFSOCK,
    S_IXUSR,
)

from reprobuild.adapters.store.dirstack import DirStack, MovedError
from reprobuild.adapters.store.opening import FILE, open_closed_file, open_directory
from reprobuild.adapters.store.taker import Opened, ReadError, Taker
from reprobuild.core import node
from reprobuild.errors import ReprobuildError

WORTH = 16 * 2**20
"""Bytes after which other processes are worth their start."""
OVERHEAD = 32 * 1024
"""What a file costs beside its content, as bytes that take as long."""
LONG = 64 * 1024
"""Files of this many bytes and more are not read at once, and given to others by their size."""

_FORMAT = 0o170000
_STEP = 128
"""Files that are taken before others are asked whether they have time."""
_FIRST_STEP = 8
"""The same while it is not known whether others are worth their start."""
_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()
_KINDS = {
    S_IFSOCK: "a socket",
    S_IFIFO: "a FIFO",
    S_IFBLK: "a block device",
    S_IFCHR: "a character device",
}


class Others:
    """Who else takes files of a walk (parts.py)."""

    def offer(self, frame: Frame, names: list[bytes]) -> int:
        """Gives away files of a directory, as far as somebody has time; how many of the first."""
        raise NotImplementedError

    def give(self, frame: Frame, name: bytes, size: int) -> bool:
        """Gives away a long file, when somebody has time."""
        raise NotImplementedError

    def flush(self) -> None:
        """Hands over what was given away of the present directory."""
        raise NotImplementedError

    def settle(self) -> None:
        """Returns when all that was given away is done."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives up what is not done."""
        raise NotImplementedError


class Frame:
    """A directory that is being read."""

    __slots__ = ("above", "before", "below", "entries", "name", "nodes", "waiting")

    def __init__(self, name: bytes, before: os.stat_result, above: Frame | None) -> None:
        self.name = name
        self.before = before
        self.above = above
        self.entries: dict[bytes, bytes] = {}
        self.below: list[bytes] = []
        """Directories that are still to be gone into."""
        self.nodes: list[str] = []
        """The digests of those that were."""
        self.waiting = 1
        """Parts that are not in `entries` yet; the walk itself is one."""


class LongFile(Opened):
    """A file that is read in pieces."""

    __slots__ = ("_before", "_frame", "_name", "_taking")

    def __init__(
        self,
        taking: Taking,
        frame: Frame,
        name: bytes,
        fd: int,
        before: os.stat_result,
        executable: bool,
    ) -> None:
        self._taking, self._frame, self._name, self._before = taking, frame, name, before
        super().__init__(fd, before.st_size, executable)

    def check(self, read: int) -> None:
        """Raises E-OUTPUT-CHANGED unless `read` bytes are all, and nothing wrote meanwhile."""
        if read != self.size or _moved(self._before, os.fstat(self.fd)):
            raise self._taking.changed(self._frame, self._name)

    def changed(self) -> ReprobuildError:
        """The error for content that is another at each reading."""
        return self._taking.changed(self._frame, self._name)


class Taking:
    """One reading of a directory: `run` once."""

    def __init__(
        self, directory: str, taker: Taker, limit: int = 2**62, *, alone: bool = False
    ) -> None:
        self._directory = os.fsencode(directory)
        self.taker = taker
        self._limit = limit
        self.total = 0
        """Bytes of the files that were taken."""
        self._others: Others | None = None
        self._files = 0
        self._alone = alone
        self._root = -1
        self._digest = b""

    def run(self) -> bytes:
        """The tree's digest; raises E-OUTPUT-…, E-TREE (too deep), and what the taker raises."""
        try:
            self._walk()
            if self._others is not None:
                self._others.settle()
        finally:
            if self._others is not None:
                self._others.close()
                self._others = None  # each knows the other, and one of them has room for a file
            if self._root >= 0:
                os.close(self._root)
        return self._digest

    def _walk(self) -> None:
        try:
            root, info = open_directory(self._directory, None)
        except OSError as error:
            raise self.unreadable(None, b"", error) from error
        with DirStack(root) as stack:
            self._root = os.dup(root)  # the walk may close its own when it is deep down
            frame: Frame | None = Frame(b"", info, None)
            assert frame is not None
            self._list(frame, root)
            while frame is not None:
                if frame.below:
                    frame = self._descend(stack, frame, frame.below.pop())
                    continue
                after, before = os.fstat(stack.top), frame.before
                if (after.st_mtime_ns, after.st_ctime_ns) != (
                    before.st_mtime_ns,
                    before.st_ctime_ns,
                ):
                    raise self.changed(frame)
                above = frame.above
                self.part_done(frame)
                if above is not None:
                    try:
                        stack.pop()
                    except (MovedError, OSError) as error:
                        raise self.changed(above) from error
                frame = above

    def _descend(self, stack: DirStack, above: Frame, name: bytes) -> Frame:
        if stack.depth >= node.MAX_DEPTH:
            from reprobuild.core.tree import check_depth

            check_depth(stack.depth + 1, self._shown(above, name))
        try:
            fd, info = open_directory(name, stack.top)
        except NotADirectoryError as error:
            raise self.changed(above, name) from error
        except OSError as error:
            raise self.unreadable(above, name, error) from error
        stack.push(fd)
        frame = Frame(name, info, above)
        above.waiting += 1
        self._list(frame, fd)
        return frame

    def part_done(self, frame: Frame) -> None:
        """One part less is missing: directories that are whole now get their digests."""
        frame.waiting -= 1
        while not frame.waiting:
            digest = self.taker.node(node.join(frame.entries), tuple(frame.nodes))
            above = frame.above
            if above is None:
                self._digest = digest
                return
            above.entries[frame.name] = node.directory(frame.name, digest)
            above.nodes.append(digest.hex())
            above.waiting -= 1
            frame = above

    def _list(self, frame: Frame, fd: int) -> None:
        files: list[bytes] = []
        with os.scandir(fd) as listing:
            for item in listing:
                name = item.name.encode(_ENCODING, _ERRORS)
                if len(name) > node.MAX_NAME:  # some file systems have longer ones
                    from reprobuild.core.tree import check_name

                    check_name(name)
                if item.is_file(follow_symlinks=False):
                    files.append(name)
                elif item.is_dir(follow_symlinks=False):
                    frame.below.append(name)
                elif item.is_symlink():
                    frame.entries[name] = node.link(name, self._link(frame, fd, name))
                else:
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    raise self._special(frame, name, info)
        position = 0
        while position < len(files):
            if self._others is not None:
                position += self._others.offer(frame, files[position:] if position else files)
            elif self._wants_others():
                from reprobuild.adapters.store.parts import Parts

                self._others = Parts(self, self._root)
                continue
            step = _FIRST_STEP if self._others is None else _STEP
            until = min(position + step, len(files))
            self.files(frame, fd, files[position:until], self._others)
            self._files += until - position
            position = until
        if self._others is not None:
            self._others.flush()

    def _wants_others(self) -> bool:
        return not self._alone and self.total + self._files * OVERHEAD > WORTH

    @property
    def short_files(self) -> bool:
        """Whether the files so far were short ones for the most part."""
        return self.total < self._files * LONG // 2

    def _link(self, frame: Frame, fd: int, name: bytes) -> bytes:
        try:
            target = os.readlink(name, dir_fd=fd)
        except OSError as error:
            raise self.changed(frame, name) from error
        if not node.target_is_allowed(target):
            from reprobuild.core.tree import Symlink, Tree

            Tree.of({name: Symlink(target)})  # which says so
        return target

    def files(
        self, frame: Frame, directory: int, names: list[bytes], others: Others | None = None
    ) -> None:
        """Takes files; long ones are given to `others` as far as these have time.

        What a tree of many files takes is spent here, half of it on Python: hence one long loop.
        """
        entries, short, limit = frame.entries, self.taker.short, self._limit
        for name in names:
            try:
                fd = os.open(name, FILE, dir_fd=directory)
                mode = -1
            except OSError as error:
                fd, mode = self._open_closed(frame, directory, name, error)
            try:
                before = os.fstat(fd)
                size = before.st_size
                if before.st_mode & _FORMAT != S_IFREG:
                    raise self._special(frame, name, before)
                if size >= LONG and others is not None and others.give(frame, name, size):
                    continue
                self.total += size
                if self.total > limit:
                    self.count(0, frame, name)
                executable = (before.st_mode if mode < 0 else mode) & S_IXUSR != 0
                if size >= LONG:
                    file = LongFile(self, frame, name, fd, before, executable)
                    entries[name] = node.file(name, self._long(file, frame, name), size, executable)
                    continue
                try:
                    # One byte more than there should be: a file that grew is noticed. A regular
                    # file gives less than it is asked for at its end alone.
                    data = os.read(fd, size + 1)
                    while len(data) < size and (more := os.read(fd, size + 1 - len(data))):
                        data += more
                except OSError as error:
                    raise self.unreadable(frame, name, error) from error
                after = os.fstat(fd)
                if (
                    len(data) != size
                    or after.st_size != size
                    or after.st_mtime_ns != before.st_mtime_ns
                    or after.st_ctime_ns != before.st_ctime_ns
                ):
                    raise self.changed(frame, name)
            finally:
                os.close(fd)
            entries[name] = node.file(name, short(data, executable), size, executable)

    def _long(self, file: LongFile, frame: Frame, name: bytes) -> bytes:
        try:
            return self.taker.long(file)
        except ReadError as error:
            assert isinstance(error.__cause__, OSError)
            raise self.unreadable(frame, name, error.__cause__) from error

    def count(self, size: int, frame: Frame, name: bytes = b"") -> None:
        """Notes `size` more bytes; raises E-OUTPUT-SIZE over the limit."""
        self.total += size
        if self.total > self._limit:
            raise ReprobuildError(
                "E-OUTPUT-SIZE",
                f"{os.fsdecode(self._directory)} holds more than {self._limit} bytes",
                path=self._shown(frame, name),
                limit=self._limit,
            )

    @property
    def left(self) -> int:
        """Bytes that may still come."""
        return self._limit - self.total

    def _open_closed(
        self, frame: Frame, directory: int, name: bytes, error: OSError
    ) -> tuple[int, int]:
        """A file that its owner made unreadable, and the mode that it had."""
        if not isinstance(error, PermissionError):
            raise self.unreadable(frame, name, error) from error
        try:
            return open_closed_file(name, directory)
        except OSError as second:
            raise self.unreadable(frame, name, second) from second

    # -- errors --------------------------------------------------------------------------------

    def _shown(self, frame: Frame | None, name: bytes) -> str:
        parts = [name] if name else []
        while frame is not None and frame.above is not None:
            parts.append(frame.name)
            frame = frame.above
        path = b"/".join((self._directory, *reversed(parts)))
        return path.decode("utf-8", "backslashreplace")

    def _special(self, frame: Frame, name: bytes, info: os.stat_result) -> ReprobuildError:
        kind = _KINDS.get(S_IFMT(info.st_mode), "of another kind than before")
        path = self._shown(frame, name)
        return ReprobuildError(
            "E-OUTPUT-SPECIAL", f"{path} is {kind}; a tree holds none", path=path, kind=kind
        )

    def changed(self, frame: Frame, name: bytes = b"") -> ReprobuildError:
        """The error for what was not the same throughout: a file `name`, or the directory."""
        path = self._shown(frame, name)
        return ReprobuildError(
            "E-OUTPUT-CHANGED", f"{path} changed while it was being read", path=path
        )

    def unreadable(self, frame: Frame | None, name: bytes, error: OSError) -> ReprobuildError:
        """The error for what the system does not let us read."""
        path = self._shown(frame, name)
        return ReprobuildError("E-OUTPUT-READ", f"cannot read {path}: {error.strerror}", path=path)


def _moved(before: os.stat_result, after: os.stat_result) -> bool:
    return (
        after.st_mtime_ns != before.st_mtime_ns
        or after.st_ctime_ns != before.st_ctime_ns
        or after.st_size != before.st_size
    )
