"""Telling in a few milliseconds whether anything that decides an output could have changed.

The key covers the bytes of flake, lock and component files, the stat data of every file of
fixture and path inputs, and this tool: its version, and the stat data of its own files, since in a
checkout they change without the version. Equal keys mean equal evaluations; a
changed key only means that the slow way is taken, which may still find nothing to do.
"""

from __future__ import annotations

import os
import stat

from reprobuild import __version__
from reprobuild.core.blake import blake3_hex, tagged_hex
from reprobuild.core.encoding import encode

TYPE_CHECKING = False  # a run with nothing to do imports no more than it needs
if TYPE_CHECKING:
    from collections.abc import Iterable

    from reprobuild.core.encoding import Value

DOMAIN = "reprobuild/fingerprint/v0"
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_CACHE = "__pycache__"
_FILES = ("flake-like.toml", "flake-like.lock")
_LARGEST = 4 * 2**20
"""Bytes of a project file; a longer one is for the loader to judge."""


def fingerprint(directory: str | os.PathLike[str], watched: Iterable[str], wishes: Value) -> str:
    """The key of a project directory, 64 hex digits.

    `watched` are paths below it that count by stat data; `wishes` whatever else decides. Raises
    nothing: what cannot be read, is no plain file or is too long makes a key that equals no other,
    so that the slow way is taken, whose loader says what is wrong.
    """
    try:
        return _fingerprint(os.fspath(directory), watched, wishes)
    except (OSError, _Odd):
        return os.urandom(32).hex()


class _Odd(Exception):
    """Something that is no plain file of a decent size."""


def _fingerprint(directory: str, watched: Iterable[str], wishes: Value) -> str:
    parts: list[bytes] = [__version__.encode(), encode(wishes), _stat_digest(_PACKAGE)]
    names = [*_FILES, *(f"derivations/{name}" for name in _component_files(directory))]
    for name in names:
        parts += (os.fsencode(name), _content(f"{directory}/{name}"))
    for path in sorted(set(watched)):
        parts += (os.fsencode(path), _stat_digest(os.path.join(directory, path)))
    return tagged_hex(DOMAIN, b"".join(len(part).to_bytes(4, "big") + part for part in parts))


def _content(path: str) -> bytes:
    """The digest of a file's bytes, nothing for one that is absent; a FIFO does not hold us up."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise _Odd
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(_LARGEST + 1)
    finally:
        os.close(fd)
    if len(data) > _LARGEST:
        raise _Odd
    return bytes.fromhex(blake3_hex(data))


def _component_files(directory: str) -> list[str]:
    try:
        names = os.listdir(f"{directory}/derivations")
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(".toml"))


def _stat_digest(top: str) -> bytes:
    """Names, sizes, modes, inodes and change times of everything below `top`."""
    lines: list[str] = []
    stack = [top]
    while stack:
        folder = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except (FileNotFoundError, NotADirectoryError):
            lines.append(f"{folder} absent")
            continue
        for entry in entries:
            if entry.name == _CACHE:
                continue  # written by Python itself, whenever it likes
            is_directory = entry.is_dir(follow_symlinks=False)
            seen = entry.stat(follow_symlinks=False)
            if is_directory:
                # Its names are listed anyway; its times move when Python writes a cache into it.
                lines.append(f"{entry.path} {seen.st_mode}")
                stack.append(entry.path)
                continue
            lines.append(
                f"{entry.path} {seen.st_mode} {seen.st_size} {seen.st_ino} "
                f"{seen.st_mtime_ns} {seen.st_ctime_ns}"
            )
    return bytes.fromhex(blake3_hex("\n".join(lines).encode("utf-8", "surrogateescape")))
