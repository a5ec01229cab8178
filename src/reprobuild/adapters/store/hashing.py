"""BLAKE3 over bytes and files: how many threads, and in pieces of which size.

A file is read in pieces that stay in a core's own cache until they are hashed: 128 KiB take half
the time of 4 MiB on a core with 512 KiB, and all the vector units are busy from 16 KiB on. Many
files are spread over the cores by whoever walks them, which costs no coordination within one; only
a long stream is hashed by all cores at once. Imports nothing that takes time: a process that only
hashes is short.
"""

from __future__ import annotations

import os

from blake3 import blake3

from reprobuild.adapters.buffers import page_aligned

PIECE = 2**17
"""What a file is read by, in bytes."""

_LONG = 2**25
"""From so many bytes on a single file is worth all cores, in pieces of `_WIDE`."""
_WIDE = 2**22
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PARALLEL_FROM = 2**20


def digest_hex(data: bytes | bytearray | memoryview) -> str:
    """The digest of `data`, on all cores when it is long enough to pay."""
    threads = blake3.AUTO if len(data) >= _PARALLEL_FROM else 1
    return blake3(data, max_threads=threads).hexdigest()


def new_hasher() -> blake3:
    """A hasher for long streams, on all cores."""
    return blake3(max_threads=blake3.AUTO)


_pieces: list[memoryview] = []
"""Room for pieces that nobody uses now: fresh memory for each file costs more than reading it."""


def read_and_hash(fd: int, size: int) -> tuple[bytes, int]:
    """The digest of what `fd` yields to its end, and its length in bytes; raises OSError.

    `size` is what it is expected to be, and decides how it is read alone.
    """
    if size >= _LONG:
        return _read(fd, new_hasher(), page_aligned(_WIDE))
    try:
        piece = _pieces.pop()
    except IndexError:  # as many are made as threads read at once
        piece = page_aligned(PIECE)
    try:
        return _read(fd, blake3(), piece)
    finally:
        _pieces.append(piece)


def _read(fd: int, hasher: blake3, piece: memoryview) -> tuple[bytes, int]:
    total = 0
    while count := os.readv(fd, [piece]):
        hasher.update(piece[:count])
        total += count
    return hasher.digest(), total


def open_quietly(path: str, flags: int, dir_fd: int | None = None) -> int:
    """Opens to read without moving the access time, where that is allowed; raises OSError.

    That of a blob is the constant, so the first reading of each would otherwise write its inode.
    """
    try:
        return os.open(path, flags | os.O_NOATIME, dir_fd=dir_fd)
    except PermissionError:  # for the owner alone
        return os.open(path, flags, dir_fd=dir_fd)


def content_problem(path: str, hex_digest: str, size: int = -1) -> str:
    """Why a file's content is not what its digest names; empty when it is.

    `size`, in bytes, is a hint that spares a look.
    """
    try:
        fd = open_quietly(path, _READ)
        try:
            found = read_and_hash(fd, os.fstat(fd).st_size if size < 0 else size)[0].hex()
        finally:
            os.close(fd)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return "" if found == hex_digest else f"its content has the digest {found}"
