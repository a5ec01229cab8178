"""Trees as read-only directories, made once and shared by every sandbox.

A builder must not see one inode under two paths: `tar` would write a hard link, GCC would take
two `#pragma once` headers for one file. So a blob's own inode serves at most one place among all
materialised trees (its link count never stays above two), and every other place gets a copy.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.blobs import Blobs
from reprobuild.adapters.store.dirstack import DIRECTORY, DirStack, discard
from reprobuild.adapters.store.faults import damaged
from reprobuild.adapters.store.hashing import digest_hex, new_hasher
from reprobuild.adapters.store.made import MadeCheck
from reprobuild.adapters.store.shelf import CHUNK
from reprobuild.adapters.store.staging import Staging
from reprobuild.adapters.store.trees import Trees
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, Entry, File, Symlink, check_depth

_CANNOT_LINK = (errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOENT)


class Materialiser:
    """Makes materialised/<tree>, materialised/<blob>.f and .x; one for each opened store.

    What an earlier process made is checked before it is first handed out (made.py). If it is not
    what it should be, it is removed and made again of the blobs, which are verified by that.
    """

    def __init__(self, staging: Staging, blobs: Blobs, trees: Trees) -> None:
        self._staging = staging
        self._blobs = blobs
        self._trees = trees
        self.home = staging.layout.directory("materialised")
        self._check = MadeCheck(staging, trees)
        self._sound: set[str] = set()
        self._checking = threading.Lock()

    def tree(self, digest: Digest) -> Path:
        """The directory of a tree; raises E-STORE-MISSING, E-STORE-DAMAGED, E-STORE-WRITE."""
        final = self.home / digest.hex
        if self._usable(final, Directory(digest)):
            return final
        self._trees.get(digest)
        self._staging.barrier()
        building = self._building()
        with durable.writing(self.home, f"the directory of tree {digest.short}"):
            try:
                made = self._build(digest, building)
                durable.sync_tree(building, made, self._staging.root_fd)
                self._publish(building, final)
                self._staging.seen.keep()
            except BaseException:
                discard(building)
                raise
        self._check.note(final)
        self._sound.add(final.name)
        return final

    def knows(self, path: Path) -> bool:
        """Whether what lies there was looked at, or made, by this process."""
        return path.name in self._sound and path.exists()

    def blob(self, digest: Digest, executable: bool) -> Path:
        """The file of a blob."""
        final = self.home / (digest.hex + (".x" if executable else ".f"))
        if self.knows(final):
            return final
        self._staging.barrier()
        fd, _ = self._blobs.open_fd(digest.hex)
        try:
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        entry = File(digest, size, executable)
        if self._usable(final, entry):
            return final
        self._blobs.ensure_mode(entry)
        self._staging.barrier()
        building = self._building()
        with durable.writing(self.home, f"the file of blob {digest.short}"):
            home = os.open(self.home, DIRECTORY)
            try:
                self._file(home, os.fsencode(building.name), entry)
                durable.sync_paths([str(building)], self._staging.root_fd)
                if not durable.rename_new(building, final):
                    durable.unlink(building)
                self._staging.seen.keep()
            except BaseException:
                durable.forget(building)
                raise
            finally:
                os.close(home)
        self._check.note(final)
        self._sound.add(final.name)
        return final

    def changed(self, digest: Digest, *, is_file: bool, executable: bool) -> bool:
        """Whether what this process has shown is not there as it should be; it is put away then."""
        if not is_file:
            return not self._still(self.home / digest.hex, Directory(digest))
        final = self.home / (digest.hex + (".x" if executable else ".f"))
        try:
            size = os.lstat(final).st_size  # another than the blob's has another digest, too
        except OSError:
            return True
        return not self._still(final, File(digest, size, executable))

    def _still(self, final: Path, entry: Directory | File) -> bool:
        with self._checking:
            self._sound.discard(final.name)
        return self._usable(final, entry)

    def _usable(self, final: Path, entry: Directory | File) -> bool:
        """Whether `final` is there and sound; what is there and is not is removed."""
        while True:
            try:
                before = os.lstat(final)
            except FileNotFoundError:
                return False
            if final.name in self._sound:
                return True
            with self._checking:
                if final.name in self._sound:
                    continue
                if self._check.sound(final, entry):
                    self._sound.add(final.name)
                    return True
                with durable.writing(self.home, f"{final.name}, which is damaged"):
                    self._put_away(final, before)

    def _put_away(self, final: Path, before: os.stat_result) -> None:
        try:
            if not os.path.samestat(os.lstat(final), before):
                return  # another process has made it again
            # Renamed first: one that is half gone must not be taken for whole after a crash.
            dead = self._building()
            durable.rename(final, dead)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(before.st_mode):
            discard(dead)
        else:
            durable.forget(dead)

    def _building(self) -> Path:
        # Beside its final name, since moving a read-only directory to another parent is refused.
        session, _, number = self._staging.temporary().rpartition("/")
        return self.home / f".{os.path.basename(session)}-{number}"

    def _publish(self, building: Path, final: Path) -> None:
        try:
            durable.rename(building, final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not final.is_dir():
                raise
            discard(building)  # another maker was first
            return
        # An empty directory that was in the way would have been replaced: same content, if any.

    def _build(self, digest: Digest, building: Path) -> int:
        """Fills `building`; how many inodes were made."""
        durable.mkdir(building)
        made = 1
        frames: list[list[tuple[bytes, Digest]]] = []
        with DirStack(os.open(building, DIRECTORY)) as stack:
            made += self._fill(stack.top, digest, frames)
            while frames:
                if frames[-1]:
                    name, child = frames[-1].pop()
                    check_depth(len(frames), f"a directory of tree {digest.short}")
                    durable.mkdir(name, dir_fd=stack.top)
                    stack.push(os.open(name, DIRECTORY, dir_fd=stack.top))
                    made += 1 + self._fill(stack.top, child, frames)
                    continue
                durable.fchmod(stack.top, 0o555)
                durable.utime(stack.top)
                frames.pop()
                if frames:
                    stack.pop()
        return made

    def _fill(self, fd: int, digest: Digest, frames: list[list[tuple[bytes, Digest]]]) -> int:
        below: list[tuple[bytes, Digest]] = []
        made = 0
        for name, entry in self._trees.get(digest).entries:
            if isinstance(entry, Directory):
                below.append((name, entry.digest))
            else:
                made += self._leaf(fd, name, entry)
        frames.append(below)
        return made

    def _leaf(self, fd: int, name: bytes, entry: Entry) -> int:
        if isinstance(entry, Symlink):
            durable.symlink(entry.target, name, dir_fd=fd)
            return 1
        assert isinstance(entry, File)
        return self._file(fd, name, entry)

    def _file(self, directory: int, name: bytes, entry: File) -> int:
        source, path = self._blobs.open_fd(entry.digest.hex, entry.executable)
        try:
            info = os.fstat(source)
            if info.st_size != entry.size:
                reason = f"{info.st_size} bytes instead of {entry.size}"
                raise damaged("blob", entry.digest.hex, path, reason)
            if _fit(info, entry) and self._try_link(source, path, directory, name):
                linked = os.fstat(source).st_ctime_ns
                _verify(source, entry, path)
                # The link moved ctime: else the next release would read all of it again.
                self._staging.seen.later(entry.digest.hex, entry.executable, path, linked)
                return 0
            self._copy(source, path, directory, name, entry)
            return 1
        finally:
            os.close(source)

    @staticmethod
    def _try_link(source: int, path: str, directory: int, name: bytes) -> bool:
        try:
            durable.link(path, name, dir_fd=directory)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            return False
        # Two makers may have linked at once: then both step back.
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if there.st_nlink <= 2 and os.path.samestat(there, os.fstat(source)):
            return True
        durable.unlink(name, dir_fd=directory)
        return False

    @staticmethod
    def _copy(source: int, path: str, directory: int, name: bytes, entry: File) -> None:
        target = durable.create(name, 0o555 if entry.executable else 0o444, dir_fd=directory)
        try:
            _verify(source, entry, path, target)
            durable.utime(target)
        finally:
            os.close(target)


def _fit(info: os.stat_result, entry: File) -> bool:
    """Whether the blob's own inode shows what a builder should see and is nowhere else."""
    mode = 0o555 if entry.executable else 0o444
    return (
        info.st_nlink == 1
        and stat.S_IMODE(info.st_mode) == mode
        and info.st_mtime_ns == durable.EPOCH_NS
    )


def _verify(source: int, entry: File, path: str, target: int = -1) -> None:
    """Reads a blob to its end, copying it to `target` when given; raises E-STORE-DAMAGED."""
    try:
        data = os.read(source, min(entry.size, CHUNK) + 1)
        if len(data) == entry.size <= CHUNK:
            found = digest_hex(data)
            if target >= 0:
                durable.write(target, data)
        else:
            hasher = new_hasher()
            while data:
                hasher.update(data)
                if target >= 0:
                    durable.write(target, data)
                data = os.read(source, 4 * CHUNK)
            found = hasher.hexdigest()
    except OSError as error:
        if error.errno == errno.EIO and target < 0:
            raise damaged("blob", entry.digest.hex, path, "unreadable") from error
        raise
    if found != entry.digest.hex:
        raise damaged("blob", entry.digest.hex, path, "its content has another digest")
