"""Merkle comparison of store trees: equal subtrees are never opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reprobuild.core.digest import Digest
from reprobuild.core.tree import EMPTY, Directory, Entry, File, Tree

Read = Callable[[Digest], Tree]


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

    Costs one node of each side for every directory on the way to a change.
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
        left = dict((read(before.digest) if before else EMPTY).entries)
        right = dict((read(after.digest) if after else EMPTY).entries)
        prefix = path + b"/" if path else b""
        names = sorted({*left, *right}, reverse=True)
        stack += [
            (prefix + name, left.get(name), right.get(name))
            for name in names
            if left.get(name) != right.get(name)
        ]
