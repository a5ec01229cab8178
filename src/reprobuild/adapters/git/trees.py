"""Walking trees: what differs between two of them, and where their attributes lie."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cmp_to_key

from reprobuild.adapters.git.objects import DIRECTORY, ObjectReader, TreeEntry, check_depth
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change

ATTRIBUTES = b".gitattributes"
_REGULAR = 0o100000


def regular(mode: int) -> bool:
    """Whether a mode says a regular file (links and submodules are none)."""
    return mode & 0o170000 == _REGULAR


def _order(one: tuple[bytes, bool], other: tuple[bytes, bool]) -> int:
    a = one[0] + (b"/" if one[1] else b"")
    b = other[0] + (b"/" if other[1] else b"")
    return (a > b) - (a < b)


def changes(
    reader: ObjectReader, old: GitOid | None, new: GitOid | None, prefix: bytes = b""
) -> Iterator[Change]:
    """Paths that differ, bytewise sorted; a directory against a file counts as both.

    Reads only directories that differ. Memory grows with depth and directory size, not with the
    tree.
    """
    if old == new:
        return
    check_depth(prefix)
    olds = {e.name: e for e in reader.tree(old)} if old is not None else {}
    news = {e.name: e for e in reader.tree(new)} if new is not None else {}
    keys = {(n, e.is_tree) for n, e in olds.items()} | {(n, e.is_tree) for n, e in news.items()}
    for name, is_tree in sorted(keys, key=cmp_to_key(_order)):
        a, b = _of_kind(olds.get(name), is_tree), _of_kind(news.get(name), is_tree)
        if a is not None and b is not None and (a.mode, a.oid) == (b.mode, b.oid):
            continue
        if is_tree:
            yield from changes(
                reader, a.oid if a else None, b.oid if b else None, prefix + name + b"/"
            )
        else:
            yield Change(
                prefix + name,
                a.mode if a else 0,
                b.mode if b else 0,
                a.oid if a else None,
                b.oid if b else None,
            )


def _of_kind(entry: TreeEntry | None, is_tree: bool) -> TreeEntry | None:
    return entry if entry is not None and entry.is_tree is is_tree else None


def lookup(reader: ObjectReader, tree: GitOid, path: bytes) -> TreeEntry | None:
    """The entry at a path, directories included."""
    entry: TreeEntry | None = None
    for part in path.split(b"/"):
        if entry is not None:
            if entry.mode != DIRECTORY:
                return None
            tree = entry.oid
        entry = next((e for e in reader.tree(tree) if e.name == part), None)
        if entry is None:
            return None
    return entry


def all_attributes(names: Iterator[tuple[int, GitOid, bytes]]) -> dict[bytes, GitOid]:
    """The attribute files out of a whole listing (mode, object, path)."""
    return {
        path: oid
        for mode, oid, path in names
        if path.rpartition(b"/")[2] == ATTRIBUTES and regular(mode)
    }


def moved_attributes(
    reader: ObjectReader, known: dict[bytes, GitOid], old: GitOid, new: GitOid
) -> dict[bytes, GitOid]:
    """The attribute files of `new`, from those of `old`, reading only what differs."""
    if old == new:
        return known
    result = dict(known)
    for change in changes(reader, old, new):
        if change.path.rpartition(b"/")[2] != ATTRIBUTES:
            continue
        result.pop(change.path, None)
        if change.new is not None and regular(change.new_mode):
            result[change.path] = change.new
    return result
