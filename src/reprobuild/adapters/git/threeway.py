"""Three-way merges in which no path is touched by both sides, done on tree objects directly.

Most heads of a stack meet nothing that came before them. Then the merge is the tip with the
head's entries put in, whatever merge driver or rename detection there is: a process, and the
reading of everything the tip changed, are spared. Whatever is not plainly of that kind is left to
git: `disjoint_merge` says None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from reprobuild.adapters.git import trees
from reprobuild.adapters.git.objects import DIRECTORY, ObjectReader, RawTree
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change

LIMIT = 1000
"""Changed paths; beyond that git itself is quicker."""

_TREE = b"40000"
_MODES = frozenset({_TREE, b"160000", b"120000", b"100644", b"100755"})
_Write = Callable[[str, bytes], GitOid]
_Edits = dict[bytes, tuple[int, GitOid] | None]


class _NotPlainError(Exception):
    """Something that git would judge in its own way."""


def disjoint_merge(
    reader: ObjectReader, write: _Write, ancestor: GitOid, ours: GitOid, theirs: GitOid
) -> GitOid | None:
    """The merged tree of three trees, or None where git has to look at it.

    `write` stores an object and returns its name.
    """
    if theirs in (ancestor, ours):
        return ours
    if ours == ancestor:
        return theirs
    changes = list(islice(trees.changes(reader, ancestor, theirs), LIMIT + 1))
    if len(changes) > LIMIT:
        return None
    try:
        changes = [c for c in changes if not _has_it(reader, ours, c)]
        _check_directories(reader, ancestor, ours, theirs, changes)
        edits: _Edits = {
            c.path: (c.new_mode, c.new) if c.new is not None else None for c in changes
        }
        if not edits:
            return ours
        return _rewrite(reader, write, ours, edits) or write("tree", b"")
    except _NotPlainError:
        return None


def _has_it(reader: ObjectReader, ours: GitOid, change: Change) -> bool:
    """Whether our side made the same change; it must have left the path alone otherwise."""
    mode, oid = 0, None
    tree = ours
    parts = change.path.split(b"/")
    for depth, part in enumerate(parts):
        entry = reader.entry(tree, part)
        if entry is None:
            break
        if depth == len(parts) - 1:
            mode, oid = entry.mode, entry.oid
        elif entry.is_tree:
            tree = entry.oid
        elif change.old is None:
            raise _NotPlainError  # a file of ours stands where a directory is wanted
        else:
            break
    if (
        change.old is not None
        and change.new is not None
        and (mode, oid)
        == (
            change.new_mode,
            change.new,
        )
    ):
        return True
    if mode == DIRECTORY or (mode, oid) != (change.old_mode, change.old):
        raise _NotPlainError
    return False


def _check_directories(
    reader: ObjectReader,
    ancestor: GitOid,
    ours: GitOid,
    theirs: GitOid,
    changes: Iterable[Change],
) -> None:
    """No directory in which one side adds was taken away by the other: git may follow a rename."""
    added: set[bytes] = set()
    left: set[bytes] = set()
    for change in changes:
        place = change.path.rpartition(b"/")[0]
        if change.old is None:
            added.add(place)
        elif change.new is None:
            left.add(place)
    for place in added:
        known = _nearest(reader, ancestor, place)
        if known and not _is_directory(reader, ours, known):
            raise _NotPlainError
    for place in left:
        here: bytes = place
        while here and not _is_directory(reader, theirs, here):
            mine = trees.lookup(reader, ours, here)
            old = trees.lookup(reader, ancestor, here)
            if mine is None or old is None or mine.oid != old.oid:
                raise _NotPlainError
            here = here.rpartition(b"/")[0]
        if not place and not reader.raw(theirs):
            raise _NotPlainError


def _nearest(reader: ObjectReader, tree: GitOid, place: bytes) -> bytes:
    while place and not _is_directory(reader, tree, place):
        place = place.rpartition(b"/")[0]
    return place


def _is_directory(reader: ObjectReader, tree: GitOid, place: bytes) -> bool:
    if not place:
        return True
    entry = trees.lookup(reader, tree, place)
    return entry is not None and entry.is_tree


def _rewrite(
    reader: ObjectReader, write: _Write, tree: GitOid | None, edits: _Edits
) -> GitOid | None:
    """The directory with its edits; None when nothing is left of it."""
    entries: RawTree = dict(reader.raw(tree)) if tree is not None else {}
    if not {mode for mode, _ in entries.values()} <= _MODES:
        raise _NotPlainError  # git would tidy such modes on its way
    below: dict[bytes, _Edits] = {}
    here: dict[bytes, tuple[int, GitOid]] = {}
    for path, value in edits.items():
        name, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(name, {})[rest] = value
        elif value is None:
            entries.pop(name, None)
        else:
            here[name] = value
    for name, deeper in below.items():
        old = entries.pop(name, None)
        made = _rewrite(reader, write, GitOid(old[1].hex()) if old else None, deeper)
        if made is not None:
            entries[name] = (_TREE, bytes.fromhex(made.hex))
    for name, (mode, oid) in here.items():
        written = b"%o" % mode
        if written not in _MODES or entries.get(name, (b"",))[0] == _TREE:
            raise _NotPlainError
        entries[name] = (written, bytes.fromhex(oid.hex))
    if not entries:
        return None
    order = sorted(entries.items(), key=lambda e: e[0] + b"/" if e[1][0] == _TREE else e[0])
    return write("tree", b"".join(b"%b %b\0%b" % (m, name, oid) for name, (m, oid) in order))
