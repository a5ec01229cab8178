"""Merkle comparison of store trees: equal subtrees are never opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, Entry, File, decode
from reprobuild.errors import ReprobuildError

Read = Callable[[Digest], bytes]
"""Gives the verified bytes of a directory node."""

_FILE, _EXECUTABLE, _DIRECTORY, _LINK = b"fxdl"


@dataclass(frozen=True, slots=True)
class PathChange:
    """A file or link that differs; a side that lacks it has None."""

    path: bytes
    old: File | object | None
    new: File | object | None

    @property
    def status(self) -> str:
        """`added`, `removed`, `mode` (only the executable bit), `type`, or `changed`."""
        if self.old is None:
            return "added"
        if self.new is None:
            return "removed"
        if isinstance(self.old, File) and isinstance(self.new, File):
            return "mode" if self.old.digest == self.new.digest else "changed"
        return "changed" if type(self.old) is type(self.new) else "type"


def compare_trees(read: Read, old: Digest | None, new: Digest | None) -> Iterator[PathChange]:
    """What differs below two trees (None: nothing there), in order of the paths.

    Costs one node of each side for every directory on the way to a change. Raises E-TREE.
    """
    stack: list[tuple[bytes, Entry | None, Entry | None]] = [
        (b"", Directory(old) if old else None, Directory(new) if new else None)
    ]
    while stack:
        path, one, other = stack.pop()
        if one == other:
            continue
        before = one if isinstance(one, Directory) else None
        after = other if isinstance(other, Directory) else None
        leaf_old = None if before is not None else one
        leaf_new = None if after is not None else other
        if leaf_old is not None or leaf_new is not None:
            yield PathChange(path, leaf_old, leaf_new)
        if before is None and after is None:
            continue
        rows = differing(
            read(before.digest) if before else b"", read(after.digest) if after else b""
        )
        prefix = path + b"/" if path else b""
        stack += [(prefix + name, left, right) for name, left, right in reversed(rows)]


def differing(old: bytes, new: bytes) -> list[tuple[bytes, Entry | None, Entry | None]]:
    """The entries that differ between two directory nodes, by name; None where a side has none.

    Equal entries are told by their bytes and never made into anything: a directory of thousands
    costs little when one of them changed. Raises E-TREE for bytes that are no node.
    """
    before, after = _rows(old), _rows(new)
    one, other = _entries(before - after), _entries(after - before)
    return [(name, one.get(name), other.get(name)) for name in sorted({*one, *other})]


def _entries(rows: set[bytes]) -> dict[bytes, Entry]:
    found: dict[bytes, Entry] = {}
    for row in rows:
        found.update(decode(row).entries)
    return found


def _rows(node: bytes) -> set[bytes]:
    """The bytes of each entry of a node (core/tree.py says how they are laid out)."""
    rows: set[bytes] = set()
    start, end, find = 0, len(node), node.find
    while start < end:
        body = find(b"\0", start) + 1
        kind = node[start]
        if kind in (_FILE, _EXECUTABLE):
            stop = body + 40
        elif kind == _DIRECTORY:
            stop = body + 32
        elif kind == _LINK:
            stop = body + 4 + int.from_bytes(node[body : body + 4], "big")
        else:
            raise ReprobuildError("E-TREE", f"directory node has an unknown kind at byte {start}")
        if not body or stop > end:
            raise ReprobuildError("E-TREE", f"directory node cut short at byte {start}")
        rows.add(node[start:stop])
        start = stop
    return rows
