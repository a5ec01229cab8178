"""Directory nodes of the content store.

A tree is a sorted tuple of named entries: file (digest, size, executable), directory (digest) or
symbolic link (target). It has no times, no owners and no other mode bits, so its digest is a
function of content alone. The encoding is binary, because names and link targets are bytes:

    entry     = kind name NUL payload
    kind      = "d" | "f" | "x" | "l"            directory, file, executable file, link
    payload   = 32 digest bytes                       for "d"
              | 32 digest bytes, 8 size bytes         for "f" and "x"   (sizes big-endian)
              | 4 length bytes, target bytes          for "l"
    digest    = BLAKE3("reprobuild/tree/v0" NUL entry*)   entries sorted by name, bytewise
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reprobuild.core import node
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.node import DOMAIN, MAX_DEPTH, MAX_NAME, MAX_SIZE, MAX_TARGET
from reprobuild.errors import ReprobuildError

__all__ = [
    "DOMAIN", "EMPTY", "MAX_DEPTH", "MAX_NAME", "MAX_SIZE", "MAX_TARGET",
    "Directory", "Entry", "File", "Symlink", "Tree", "check_depth", "check_name", "decode",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class File:
    """A regular file: the digest and size in bytes of its content, and one mode bit."""

    digest: Digest
    size: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Directory:
    """A subdirectory, by the digest of its own tree."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link and its target, kept as bytes and never followed by the store."""

    target: bytes


Entry = File | Directory | Symlink


def check_name(name: bytes) -> None:
    """Raises E-TREE unless `name` can stand as one path component on Linux."""
    if not node.name_is_allowed(name):
        raise ReprobuildError("E-TREE", f"{name[:80]!r} is not allowed as a file name")


def check_depth(levels: int, path: str) -> None:
    """Raises E-TREE for more than `MAX_DEPTH` levels; `path` says where, and is cut short."""
    if levels > MAX_DEPTH:
        raise ReprobuildError(
            "E-TREE",
            f"{path[:200]}… lies more than {MAX_DEPTH} directories deep; no tree does",
            hint="leave such directories out of what is taken",
            limit=MAX_DEPTH,
        )


@dataclass(frozen=True, slots=True)
class Tree:
    """One directory node; build it with `Tree.of`, which sorts and checks."""

    entries: tuple[tuple[bytes, Entry], ...]

    @classmethod
    def of(cls, entries: dict[bytes, Entry]) -> Tree:
        """The tree of `entries`, in canonical order; raises E-TREE for a name not allowed."""
        for name, entry in entries.items():
            check_name(name)
            _check_entry(name, entry)
        return cls(tuple(sorted(entries.items())))

    def encode(self) -> bytes:
        """The canonical bytes (see the module text)."""
        parts: list[bytes] = []
        for name, entry in self.entries:
            if isinstance(entry, File):
                parts.append(node.file(name, entry.digest.raw, entry.size, entry.executable))
            elif isinstance(entry, Directory):
                parts.append(node.directory(name, entry.digest.raw))
            else:
                parts.append(node.link(name, entry.target))
        return b"".join(parts)

    @property
    def digest(self) -> Digest:
        """What names this tree."""
        return tagged(DOMAIN, self.encode())

    def get(self, name: bytes) -> Entry | None:
        """The entry called `name`, or None."""
        for candidate, entry in self.entries:
            if candidate == name:
                return entry
        return None

    def __iter__(self) -> Iterator[tuple[bytes, Entry]]:
        return iter(self.entries)


def _check_entry(name: bytes, entry: Entry) -> None:
    if isinstance(entry, Symlink):
        if not node.target_is_allowed(entry.target):
            raise ReprobuildError("E-TREE", f"the link {name!r} has a target that is not allowed")
    elif isinstance(entry, File) and not 0 <= entry.size < MAX_SIZE:
        raise ReprobuildError("E-TREE", f"the file {name!r} has an impossible size")


def decode(data: bytes) -> Tree:
    """The tree whose encoding is exactly `data`; raises E-TREE for anything else."""
    try:
        rows = node.rows(data)
    except node.NodeError as error:
        raise ReprobuildError("E-TREE", str(error)) from None
    return Tree(tuple((name, _entry(kind, value, size)) for kind, name, value, size in rows))


def _entry(kind: bytes, value: bytes, size: int) -> Entry:
    if kind == b"d":
        return Directory(Digest(value.hex()))
    return Symlink(value) if kind == b"l" else File(Digest(value.hex()), size, kind == b"x")


EMPTY = Tree(())
