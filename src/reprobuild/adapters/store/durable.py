"""Every call that changes the disk, in one place.

The rest of the store goes through this module's functions by name (`durable.rename_new(…)`), so
that the crash tests can stop, starve or shorten any one of them. They raise OSError;
`writing` turns it into E-STORE-WRITE at the store's edge.
"""

from __future__ import annotations

import errno
import os
import stat

from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that or pathlib: who only reads waits
if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path
    from types import TracebackType

EPOCH_NS = 10**9
"""The one mtime of everything that a builder may see: second 1 (0 upsets some archivers)."""

FEW = 8
"""Up to so many files are synchronised one by one; more by one `syncfs`."""

_RENAME_NOREPLACE = 1
_SYNC_FILE_RANGE_WRITE = 2
_AT_FDCWD = -100
_REFUSED = (errno.EACCES, errno.EPERM)
_OUT_OF_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EEXIST)
_NO_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def create(path: str | bytes | Path, mode: int = 0o444, *, dir_fd: int | None = None) -> int:
    """A new file, open for writing; the name must be free.

    It has its final mode from the start, whatever the umask: no other process can open it to write.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) != mode:  # the umask; a look costs less than a write
            fchmod(fd, mode)
    except OSError:
        os.close(fd)
        forget(path, dir_fd=dir_fd)
        raise
    return fd


def open_to_append(path: str, mode: int) -> int:
    """A file, open to be written at its end; made with `mode`, less the umask, when absent.

    What is no file (a pipe that nobody reads) is not waited for.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(path, flags, mode)


def write_some(fd: int, data: bytes | bytearray | memoryview) -> int:
    """One write(2): may write less than it was given."""
    return os.write(fd, data)


def write(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Writes all of `data`."""
    done = write_some(fd, data)
    if done == len(data):
        return
    rest = memoryview(data)
    while done < len(rest):
        step = write_some(fd, rest[done:])
        if step <= 0:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        done += step


def fchmod(fd: int, mode: int) -> None:
    """chmod of an open file or directory."""
    os.fchmod(fd, mode)


def utime(fd: int) -> None:
    """Sets atime and mtime of an open file or directory to the constant."""
    os.utime(fd, ns=(EPOCH_NS, EPOCH_NS))


def fsync(fd: int) -> None:
    """fsync(2)."""
    os.fsync(fd)


def mkdir(path: str | bytes | Path, *, dir_fd: int | None = None) -> None:
    """A new directory, world-readable whatever the umask; the name must be free."""
    os.mkdir(path, 0o755, dir_fd=dir_fd)
    if stat.S_IMODE(os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode) != 0o755:
        os.chmod(path, 0o755, dir_fd=dir_fd)  # noqa: S103 - build users read materialised trees


_SHARED = stat.S_ISGID | stat.S_IWGRP


def is_shared(directory: str | Path) -> bool:
    """Whether the accounts of a group write in a directory."""
    return os.stat(directory).st_mode & _SHARED == _SHARED


def ensure_directory(path: str | Path) -> None:
    """Makes `path` unless it is there; below a directory that a group shares, shared as well."""
    try:
        mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    if is_shared(os.path.dirname(path)):
        os.chmod(path, 0o2775)  # noqa: S103 - other accounts of the group write here


def rmdir(path: str | bytes | Path, *, dir_fd: int | None = None) -> None:
    """rmdir(2)."""
    os.rmdir(path, dir_fd=dir_fd)


def symlink(target: bytes, path: str | bytes | Path, *, dir_fd: int | None = None) -> None:
    """A symbolic link with the constant mtime."""
    os.symlink(target, path, dir_fd=dir_fd)
    os.utime(path, ns=(EPOCH_NS, EPOCH_NS), dir_fd=dir_fd, follow_symlinks=False)


def link(source: str, path: str | bytes | Path, *, dir_fd: int | None = None) -> None:
    """link(2)."""
    os.link(source, path, dst_dir_fd=dir_fd, follow_symlinks=False)


def unlink(path: str | bytes | Path, *, dir_fd: int | None = None) -> None:
    """unlink(2)."""
    os.unlink(path, dir_fd=dir_fd)


def rename(source: str | Path, target: str | Path) -> None:
    """rename(2): for documents that are replaced on purpose, and directories."""
    os.rename(source, target)


def rename_new(source: str | Path, target: str | Path) -> bool:
    """Gives `source` the name `target` unless that is taken; whether it did.

    What is there is never replaced, even when two processes come at once.
    """
    libc = _libc()
    if libc is not None:
        number = libc.rename_new(os.fsencode(source), os.fsencode(target))
        if number == 0:
            return True
        if number == errno.EEXIST:
            return False
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number), str(source), None, str(target))
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        if os.path.lexists(target):
            return False
        os.rename(source, target)
        return True
    os.unlink(source)
    return True


def syncfs(fd: int) -> None:
    """Makes the whole file system of `fd` durable; ENOSYS where errors would go unreported."""
    libc = _libc()
    if libc is None or not _syncfs_reports():
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    number = libc.syncfs(fd)
    if number:
        raise OSError(number, os.strerror(number))


def _syncfs_reports() -> bool:
    # Before Linux 5.8 syncfs swallowed write-back errors.
    major, _, rest = os.uname().release.partition(".")
    minor = rest.partition(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= (5, 8)


def begin_writing_back(fd: int) -> None:
    """Has the kernel begin to write a file to the disk, so that a later barrier waits less.

    Promises nothing, and takes no error away from who asks later: only waiting would.
    """
    libc = _libc()
    if libc is not None:
        libc.begin_writing_back(fd)


class _Libc:
    """The calls that the os module lacks; those that can fail return an errno, 0 for success."""

    def __init__(self) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self._syncfs = libc.syncfs  # AttributeError where libc has none
        self._renameat2 = libc.renameat2
        self._errno = ctypes.get_errno
        self._range = libc.sync_file_range
        self._range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def begin_writing_back(self, fd: int) -> None:
        self._range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)

    def syncfs(self, fd: int) -> int:
        return self._errno() if self._syncfs(fd) else 0

    def rename_new(self, source: bytes, target: bytes) -> int:
        failed = self._renameat2(_AT_FDCWD, source, _AT_FDCWD, target, _RENAME_NOREPLACE)
        return self._errno() if failed else 0


_loaded: list[_Libc | None] = []


def _libc() -> _Libc | None:
    if not _loaded:
        try:
            _loaded.append(_Libc())
        except (AttributeError, OSError):
            _loaded.append(None)
    return _loaded[0]


def sync_paths(paths: Collection[str], root_fd: int) -> None:
    """Makes files and directories durable: one by one when few, else by one `syncfs(root_fd)`.

    `root_fd` was opened before the files were written, so that the kernel reports to it every
    write-back error since.
    """
    if not paths:
        return
    if len(paths) > FEW:
        try:
            syncfs(root_fd)
            return
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fsync(fd)
        finally:
            os.close(fd)


def sync_tree(path: str | Path, inodes: int, root_fd: int) -> None:
    """Makes a directory with about `inodes` new inodes durable, all the way down."""
    if inodes > FEW:
        try:
            syncfs(root_fd)
            return
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
    for _, _, files, fd in os.fwalk(path):
        for name in files:
            _fsync_regular(name, fd)
        fsync(fd)


def _fsync_regular(name: str, directory: int) -> None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return  # a symbolic link lives in its directory
        raise
    try:
        fsync(fd)
    finally:
        os.close(fd)


def sync_directory(path: str | Path) -> None:
    """fsync of a directory, which makes the names in it durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fsync(fd)
    finally:
        os.close(fd)


def write_document(
    temporary: str | Path, target: str | Path, data: bytes, *, replace: bool
) -> None:
    """A small file with `data` at `target`, atomic and durable on return, read-only."""
    fd = create(temporary)
    try:
        try:
            write(fd, data)
            fsync(fd)
        finally:
            os.close(fd)
        if replace:
            rename(temporary, target)
        elif not rename_new(temporary, target):
            unlink(temporary)
    except OSError:
        forget(temporary)
        raise
    sync_directory(os.path.dirname(target))


def forget(path: str | bytes | Path, *, dir_fd: int | None = None) -> None:
    """Removes a temporary file as far as that can be done."""
    try:
        unlink(path, dir_fd=dir_fd)
    except OSError:
        return


def free_bytes(path: str | Path) -> int:
    """Bytes that this user may still write on the file system of `path`; 0 when unknown."""
    return _free_bytes(path) or 0


def _free_bytes(path: str | Path) -> int | None:
    try:
        info = os.statvfs(path)
    except OSError:
        return None
    return info.f_bavail * info.f_frsize


class writing:
    """Turns an OSError of the body into E-STORE-WRITE: which path, why, how much space is left.

    A class, since contextlib takes as long to import as hashing a small tree.
    """

    __slots__ = ("_root", "_what")

    def __init__(self, root: str | Path, what: str) -> None:
        self._root, self._what = root, what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise write_error(self._root, self._what, error) from error


def write_error(root: str | Path, what: str, error: OSError) -> ReprobuildError:
    """The E-STORE-WRITE for `error`."""
    # A name below an open directory says nothing by itself, and a link's target misleads.
    path = error.filename
    path = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
    if not path.startswith(f"{root}/"):
        path = str(root)
    reason = error.strerror or str(error)
    if error.errno in _REFUSED:  # room is not the matter
        theirs = owner(path)
        whose = f"; that is {theirs}'s" if theirs else ""
        return ReprobuildError(
            "E-STORE-WRITE",
            f"cannot write {what}: {reason} ({path}{whose})",
            hint="this user may not write there: mend the permissions, or name a store of your "
            "own with --store DIR",
            path=path,
            errno=errno.errorcode[error.errno],
        )
    facts: dict[str, str | int] = {
        "path": path,
        "errno": errno.errorcode.get(error.errno or 0, "unknown"),
    }
    hint, where = None, path
    if error.errno == errno.EROFS:
        hint = (
            "the file system is mounted read-only: mount it to be written, or name a store "
            "elsewhere with --store DIR"
        )
    elif error.errno in _OUT_OF_PLACE:
        hint = (
            "something of the store is missing, or another thing lies in its place: "
            "`reprobuild store verify` names what is off, `reprobuild store repair` mends the store"
        )
    else:
        place = root if os.path.lexists(root) else os.path.dirname(root)  # one that is being made
        free = _free_bytes(place)
        if free is not None:
            facts["free_bytes"] = free
            where = f"{free // 2**20} MiB free in {place}"
    return ReprobuildError(
        "E-STORE-WRITE", f"cannot write {what}: {reason} ({where})", hint=hint, **facts
    )


def owner(path: str | Path) -> str:
    """The account that a path, or the directory that lacks it, belongs to; empty when it is ours,
    or unknown."""
    import pwd

    path = path if os.path.lexists(path) else os.path.dirname(path)
    try:
        uid = os.stat(path).st_uid
        return "" if uid == os.geteuid() else f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
    except OSError:
        return ""
