"""Room that is kept for collection: a file that it gives up first when the disk is full.

Removing things can itself take a block or an inode (a directory that grows, a lock's file, the
journal of a copy-on-write file system), which a full disk refuses. One file holds both back.
"""

from __future__ import annotations

import os

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.paths import RESERVE

SIZE = 2**20
"""Bytes of the reserve."""

_LOW_BYTES, _LOW_INODES = 4 * SIZE, 64


def give_up_when_full(root: str) -> None:
    """Removes the reserve where hardly a byte or an inode is left."""
    bytes_free, inodes_free = _free(root)
    if bytes_free < _LOW_BYTES or inodes_free < _LOW_INODES:
        durable.forget(f"{root}/{RESERVE}")


def set_aside(root: str) -> None:
    """Makes the reserve where there is none and room enough; never an error."""
    path = f"{root}/{RESERVE}"
    bytes_free, inodes_free = _free(root)
    if os.path.lexists(path) or bytes_free < 2 * _LOW_BYTES or inodes_free < 2 * _LOW_INODES:
        return
    temporary = os.path.join(root, "tmp", f"{RESERVE}-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        fd = durable.create(temporary)
    except OSError:
        return
    try:
        os.posix_fallocate(fd, 0, SIZE)
        durable.rename(temporary, path)
    except OSError:
        durable.forget(temporary)
    finally:
        os.close(fd)


def _free(root: str) -> tuple[int, int]:
    try:
        info = os.statvfs(root)
    except OSError:
        return 2**62, 2**62
    # Some file systems make inodes as they go, and say that they have none.
    inodes = info.f_favail if info.f_files else 2**62
    return info.f_bavail * info.f_frsize, inodes
