"""Putting a verified file into the store as a tree of one file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.tree import File, check_name
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore


class HashingReader:
    """Passes reads through and hashes what went by."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self._hasher = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        """As the inner file's."""
        piece = self._inner.read(size)
        self._hasher.update(piece)
        return piece

    def readinto(self, buffer: bytearray | memoryview, /) -> int:
        """As the inner file's."""
        view = memoryview(buffer).cast("B")
        piece = self._inner.read(len(view))
        view[: len(piece)] = piece
        self._hasher.update(piece)
        return len(piece)

    @property
    def sha256(self) -> Sha256:
        """Of all that was read."""
        return Sha256(self._hasher.hexdigest())


def add_file(
    content: ContentStore, path: Path, sha256: Sha256, *, executable: bool = False
) -> File:
    """Stores the file at `path`, which must still have the content that was verified."""
    with path.open("rb") as handle:
        size = path.stat().st_size
        reader = HashingReader(handle)
        entry = content.add_blob(cast(BinaryIO, reader), executable=executable, size=size)
    if reader.sha256 != sha256:
        raise ReprobuildError(
            "E-FETCH-MISMATCH",
            f"{path.name} changed between its verification and its storing",
            hint="let no other program write into the directory of downloads",
            expected=str(sha256),
            got=str(reader.sha256),
        )
    return entry


def store_file(content: ContentStore, path: Path, fixed: FixedOutput) -> Digest:
    """Stores the tree that holds just the file `fixed` promises; returns its digest."""
    filename, sha256 = promised_file(fixed)
    builder = TreeBuilder()
    builder.add(filename.encode(), add_file(content, path, sha256))
    digest, nodes = builder.build()
    content.add_trees(nodes)
    return digest


def promised_file(fixed: FixedOutput) -> tuple[str, Sha256]:
    """The file name and digest of a `file` promise; raises E-LOCK for any other."""
    if fixed.kind != "file" or fixed.sha256 is None or not fixed.filename:
        raise ReprobuildError("E-LOCK", f"a {fixed.kind!r} pin where a file's was expected")
    check_name(fixed.filename.encode())
    return fixed.filename, fixed.sha256


def text(origin: Mapping[str, Value], key: str) -> str:
    """A text of an origin document; raises E-LOCK when it is absent or something else."""
    value = origin.get(key)
    if not isinstance(value, str) or not value:
        raise ReprobuildError("E-LOCK", f"a pin's origin lacks {key!r}", key=key)
    return value


def size_of(origin: Mapping[str, Value]) -> int:
    """The declared size in bytes, -1 where the origin is silent; raises E-LOCK for nonsense."""
    value = origin.get("size", -1)
    if type(value) is not int or value < -1:
        raise ReprobuildError("E-LOCK", "a pin's size is no number of bytes", key="size")
    return value
