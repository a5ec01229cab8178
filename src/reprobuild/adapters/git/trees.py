"""Walking trees: what differs between two of them, and where their attributes lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from reprobuild.adapters.git.objects import (
    DIRECTORY,
    ObjectReader,
    TreeEntry,
    check_depth,
)
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change

ATTRIBUTES = b".gitattributes"
_REGULAR = 0o100000
_Raw = tuple[bytes, bytes]


def regular(mode: int) -> bool:
    """Whether a mode says a regular file (links and submodules are none)."""
    return mode & 0o170000 == _REGULAR


def is_tree(mode: bytes) -> bool:
    """Whether a mode, in octal digits, says a directory."""
    return mode == b"40000" or int(mode, 8) == DIRECTORY


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
    olds = reader.raw(old) if old is not None else {}
    news = reader.raw(new) if new is not None else {}
    rows: list[tuple[bytes, _Raw | None, _Raw | None]] = []
    for name in {name for name, _ in olds.items() ^ news.items()}:
        a, b = olds.get(name), news.get(name)
        deep_a, deep_b = a is not None and is_tree(a[0]), b is not None and is_tree(b[0])
        # a directory sorts as if its name ended in a slash, and before or after a file of that name
        if deep_a or deep_b:
            rows.append((name + b"/", a if deep_a else None, b if deep_b else None))
        if (a is not None and not deep_a) or (b is not None and not deep_b):
            rows.append((name, None if deep_a else a, None if deep_b else b))
    rows.sort(key=itemgetter(0))
    for key, a, b in rows:
        one = GitOid(a[1].hex()) if a is not None else None
        other = GitOid(b[1].hex()) if b is not None else None
        if key.endswith(b"/"):
            yield from changes(reader, one, other, prefix + key)
        else:
            was, now = (int(side[0], 8) if side is not None else 0 for side in (a, b))
            yield Change(prefix + key, was, now, one, other)


def lookup(reader: ObjectReader, tree: GitOid, path: bytes) -> TreeEntry | None:
    """The entry at a path, directories included."""
    entry: TreeEntry | None = None
    for part in path.split(b"/"):
        if entry is not None:
            if entry.mode != DIRECTORY:
                return None
            tree = entry.oid
        entry = reader.entry(tree, part)
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


def attributes_above(
    reader: ObjectReader, tree: GitOid, paths: Iterable[bytes]
) -> dict[bytes, GitOid]:
    """The attribute files of a tree that lie in directories above any of `paths`.

    git looks for a path's attributes there and nowhere else (gitattributes(5)).
    """
    below: dict[bytes, set[bytes]] = {}
    for path in paths:
        name, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(name, set()).add(rest)
    found = {}
    own = reader.entry(tree, ATTRIBUTES)
    if own is not None and regular(own.mode):
        found[ATTRIBUTES] = own.oid
    for name, deeper in below.items():
        entry = reader.entry(tree, name)
        if entry is not None and entry.is_tree:
            more = attributes_above(reader, entry.oid, deeper)
            found.update((name + b"/" + path, oid) for path, oid in more.items())
    return found


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
