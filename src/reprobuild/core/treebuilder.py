"""Composing a tree in memory out of paths, without touching a disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from reprobuild.core.digest import Digest
from reprobuild.core.tree import (
    Directory,
    Entry,
    File,
    Symlink,
    Tree,
    check_depth,
    check_name,
)
from reprobuild.errors import ReprobuildError


def split_path(path: bytes) -> tuple[bytes, ...]:
    """The components of a relative path; `.` components are dropped.

    Raises E-TREE for an absolute path or a `..`, since nothing escapes the tree that is being
    built, and for one of more levels than a tree may have.
    """
    if path.startswith(b"/"):
        raise ReprobuildError("E-TREE", f"{path[:200]!r} is absolute; a path inside a tree is not")
    parts = tuple(part for part in path.split(b"/") if part not in (b"", b"."))
    for part in parts:
        check_name(part)
    check_depth(len(parts) - 1, repr(path[:200]))
    return parts


@dataclass(slots=True)
class TreeBuilder:
    """A directory under construction.

    Subtrees that are already known are grafted by digest and stay opaque: adding something below
    a graft is an error, since its nodes are not here.
    """

    _children: dict[bytes, TreeBuilder | Entry] = field(default_factory=dict)

    def _directory(self, parts: tuple[bytes, ...], full: bytes) -> TreeBuilder:
        check_depth(len(parts), repr(full[:200]))
        here = self
        for part in parts:
            child = here._children.get(part)
            if child is None:
                child = here._children[part] = TreeBuilder()
            if not isinstance(child, TreeBuilder):
                raise ReprobuildError(
                    "E-TREE", f"{full!r} lies below {part!r}, which is no open directory"
                )
            here = child
        return here

    def add(self, path: bytes, entry: Entry) -> None:
        """Puts `entry` at `path`, making parents; raises E-TREE when the place is taken."""
        parts = split_path(path)
        if not parts:
            raise ReprobuildError("E-TREE", "an entry needs a path")
        parent = self._directory(parts[:-1], path)
        if parts[-1] in parent._children and parent._children[parts[-1]] != entry:
            raise ReprobuildError("E-TREE", f"{path!r} is there twice, with different content")
        parent._children[parts[-1]] = entry

    def add_directory(self, path: bytes) -> None:
        """Makes sure that a directory stands at `path`."""
        self._directory(split_path(path), path)

    def lookup(self, path: bytes) -> TreeBuilder | Entry | None:
        """What stands at `path`, links not followed."""
        here: TreeBuilder | Entry = self
        for part in split_path(path):
            if not isinstance(here, TreeBuilder):
                return None
            child = here._children.get(part)
            if child is None:
                return None
            here = child
        return here

    def build(self) -> tuple[Digest, dict[Digest, Tree]]:
        """The root's digest and every node that was made here, by digest (children included)."""
        nodes: dict[Digest, Tree] = {}
        made: dict[int, Digest] = {}
        stack = [self]
        while stack:
            here = stack[-1]
            below = [c for c in here._children.values() if isinstance(c, TreeBuilder)]
            if todo := [c for c in below if id(c) not in made]:
                stack += todo
                continue
            stack.pop()
            tree = Tree.of(
                {
                    name: Directory(made[id(c)]) if isinstance(c, TreeBuilder) else c
                    for name, c in here._children.items()
                }
            )
            made[id(here)] = digest = tree.digest
            nodes[digest] = tree
        return made[id(self)], nodes


__all__ = ["Directory", "File", "Symlink", "TreeBuilder", "split_path"]
