"""Whether the locks of a store hold where it lies.

Between processes of one machine flock(2) holds on every file system that has it at all, which is
tried out. Between machines it holds only where the file system says so to its server: that cannot
be tried from one side, so kinds that are known not to are refused by name.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from reprobuild.errors import ReprobuildError

_WEAK = {
    "9p": "locks stay on one side of a 9p mount",
    "afs": "AFS locks are advisory to each client alone",
    "ceph-fuse": "its locks depend on how it was mounted",
    "cifs": "SMB turns locks into mandatory ones, or keeps them on this machine",
    "coda": "Coda has no locks between machines",
    "davfs": "WebDAV has no flock",
    "fuse.davfs2": "WebDAV has no flock",
    "fuse.gcsfuse": "an object store has no locks",
    "fuse.goofys": "an object store has no locks",
    "fuse.rclone": "an object store has no locks",
    "fuse.s3fs": "an object store has no locks",
    "fuse.sshfs": "SFTP has no locks",
    "nfs": "NFS does not lock directories, and locks there may be given up silently",
    "nfs4": "NFS does not lock directories, and locks there may be given up silently",
    "smb3": "SMB turns locks into mandatory ones, or keeps them on this machine",
    "smbfs": "SMB turns locks into mandatory ones, or keeps them on this machine",
    "virtiofs": "locks stay inside this virtual machine",
}


def require_locks(root: Path, *, local: bool = False, mounts: Path | None = None) -> None:
    """Raises E-STORE-LOCKS when locks on the store's file system cannot be relied upon.

    `local` is the user's word that no other machine uses the store, which leaves only what can be
    tried out here. `mounts` is the table of mounts, /proc/self/mountinfo.
    """
    if not local:
        kind = file_system(root, mounts or Path("/proc/self/mountinfo"))
        if kind in _WEAK:
            raise _refusal(root, f"it lies on {kind}, where {_WEAK[kind]}", kind)
    reason = _try(root)
    if reason:
        raise _refusal(root, reason, "")


def _refusal(root: Path, reason: str, kind: str) -> ReprobuildError:
    hint = "put the store on a local disk (--store DIR, $REPROBUILD_STORE)"
    if kind:
        hint += ", or, when no other machine uses it, set REPROBUILD_STORE_LOCKS=local"
    return ReprobuildError(
        "E-STORE-LOCKS",
        f"the locks of the store at {root} would not hold: {reason}",
        hint=hint,
        path=str(root),
        file_system=kind or None,
    )


def file_system(path: Path, mounts: Path) -> str:
    """The kind of file system that `path` lies on; empty when the table does not say."""
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return ""
    wanted = os.fsencode(os.path.realpath(path))
    best, kind = b"", ""
    for line in lines:
        fields, separator, rest = line.partition(b" - ")
        words = fields.split()
        if not separator or len(words) < 5:
            continue
        place = _unescape(words[4])
        inside = wanted == place or wanted.startswith(place.rstrip(b"/") + b"/")
        if inside and len(place) >= len(best):  # the last one of equals lies on top
            best, kind = place, rest.split()[0].decode("ascii", "replace")
    return kind


def _unescape(text: bytes) -> bytes:
    """The kernel writes blanks and backslashes in names as three octal digits."""
    head, *rest = text.split(b"\\")
    return head + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def _try(root: Path) -> str:
    """Why flock does not exclude on directories or files here; empty when it does."""
    for path in (root / "locks", root / "format"):
        first = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            second = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            finally:
                os.close(second)
        except BlockingIOError:
            continue  # as it should be – or somebody else tries it out right now
        except OSError as error:
            return f"flock fails on {path}: {error.strerror}"
        finally:
            os.close(first)
        return f"two hold the lock on {path} at once"
    return ""
