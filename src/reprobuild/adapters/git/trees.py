"""Walking trees: what differs between two of them, and where their attributes lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reprobuild.adapters.git.objects import (
    DIRECTORY,
    ObjectReader,
    RawTree,
    TreeEntry,
    check_depth,
    entry_of,
)
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change

ATTRIBUTES = b".gitattributes"
_REGULAR = 0o100000


def regular(mode: int) -> bool:
    """Whether a mode says a regular file (links and submodules are none)."""
    return mode & 0o170000 == _REGULAR


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
    names = {name for name, _ in olds.items() ^ news.items()}
    sides = [(_entry(olds, name), _entry(news, name)) for name in names]
    # a directory sorts as if its name ended in a slash, and before or after a file of that name
    rows = [(a.name + b"/", a, b) for a, b in _parts(sides, trees=True)]
    rows += [(a.name, a, b) for a, b in _parts(sides, trees=False)]
    for key, a, b in sorted(rows, key=lambda row: row[0]):
        one = a if a.mode else None
        other = b if b.mode else None
        if key.endswith(b"/"):
            yield from changes(
                reader, one.oid if one else None, other.oid if other else None, prefix + key
            )
        else:
            yield Change(
                prefix + key, a.mode, b.mode, one.oid if one else None, other.oid if other else None
            )


_NONE = GitOid("0" * 40)


def _entry(listing: RawTree, name: bytes) -> TreeEntry:
    value = listing.get(name)
    return entry_of(name, *value) if value is not None else TreeEntry(0, name, _NONE)


def _parts(
    sides: Sequence[tuple[TreeEntry, TreeEntry]], *, trees: bool
) -> Iterator[tuple[TreeEntry, TreeEntry]]:
    """The pairs with what is of the other kind taken for absent."""
    for a, b in sides:
        one = a if a.mode and a.is_tree is trees else TreeEntry(0, a.name, _NONE)
        other = b if b.mode and b.is_tree is trees else TreeEntry(0, b.name, _NONE)
        if one.mode or other.mode:
            yield one, other


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
