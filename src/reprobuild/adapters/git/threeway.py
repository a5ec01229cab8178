"""Three-way merges put together from tree objects, with git asked only for contents.

Most paths that a head changes are as the head found them in the tip: then the merge is the tip
with the head's entries put in, whatever merge driver or rename detection there is. A file that
all three sides have can be no part of a rename either (git takes only what a side lacks for a
rename's source, and only what is new to it for its target), so what is merged there is the file's
content and nothing else, and git is handed that file alone. Whatever is not plainly of these
kinds is left to git as a whole: `merged_tree` says None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from reprobuild.adapters.git import trees
from reprobuild.adapters.git.objects import DIRECTORY, ObjectReader
from reprobuild.adapters.git.treewrite import NotPlainError, Side, Write, rewritten
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change

FILES = frozenset({0o100644, 0o100755})
"""The modes of regular files, as git writes them."""
MET = 256
"""Files whose contents are merged one by one; beyond that git itself is quicker."""


@dataclass(frozen=True, slots=True)
class Met:
    """A regular file that all three sides have, each differently."""

    path: bytes
    old: Side
    ours: Side
    theirs: Side


Changes = Callable[[GitOid, GitOid], Sequence[Change] | None]
"""What differs between two trees; None where that is too much to go through here."""

Contents = Callable[[GitOid, Sequence[Met]], Sequence[Side | None]]
"""Merges the contents of files in our tree (named first); None for what git did not merge."""


def merged_tree(
    reader: ObjectReader,
    write: Write,
    changes_of: Changes,
    contents: Contents,
    ancestor: GitOid,
    ours: GitOid,
    theirs: GitOid,
) -> GitOid | None:
    """The merged tree of three trees, or None where git has to look at it as a whole."""
    if theirs in (ancestor, ours):
        return ours
    if ours == ancestor:
        return theirs
    changes = changes_of(ancestor, theirs)
    if changes is None:
        return None
    try:
        edits: dict[bytes, Side | None] = {}
        met: list[Met] = []
        left: list[Change] = []
        for change in changes:
            judged = _judge(reader, ours, change)
            if isinstance(judged, Met):
                met.append(judged)
            elif judged:
                left.append(change)
                edits[change.path] = (change.new_mode, change.new) if change.new else None
        if len(met) > MET:
            return None
        _check_directories(reader, ancestor, ours, theirs, left)
        if met:
            for one, made in zip(met, contents(ours, met), strict=True):
                if made is None:
                    return None
                edits[one.path] = made
        if not edits:
            return ours
        return rewritten(reader, write, ours, edits) or write("tree", b"")
    except NotPlainError:
        return None


def _judge(reader: ObjectReader, ours: GitOid, change: Change) -> Met | bool:
    """Whether a change of theirs is to be put in: our side left the path alone (True), made the
    same change itself (False), or made another one of the same file's content (Met).

    Raises NotPlainError for anything else.
    """
    mode, oid = _at(reader, ours, change)
    if change.old is not None and change.new is not None:
        if (mode, oid) == (change.new_mode, change.new):
            return False
        if (mode, oid) != (change.old_mode, change.old):
            return _met(change, mode, oid)
    if mode == DIRECTORY or (mode, oid) != (change.old_mode, change.old):
        raise NotPlainError
    return True


def _met(change: Change, mode: int, oid: GitOid | None) -> Met:
    if oid is None or change.old is None or change.new is None:
        raise NotPlainError
    if not {mode, change.old_mode, change.new_mode} <= FILES:
        raise NotPlainError
    old, theirs = (change.old_mode, change.old), (change.new_mode, change.new)
    return Met(change.path, old, (mode, oid), theirs)


def _at(reader: ObjectReader, ours: GitOid, change: Change) -> tuple[int, GitOid | None]:
    """What our side has where theirs changed something; mode 0 for nothing."""
    tree = ours
    parts = change.path.split(b"/")
    for depth, part in enumerate(parts):
        entry = reader.entry(tree, part)
        if entry is None:
            break
        if depth == len(parts) - 1:
            return entry.mode, entry.oid
        if entry.is_tree:
            tree = entry.oid
        elif change.old is None:
            raise NotPlainError  # a file of ours stands where a directory is wanted
        else:
            break
    return 0, None


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
            raise NotPlainError
    for place in left:
        here: bytes = place
        while here and not _is_directory(reader, theirs, here):
            mine = trees.lookup(reader, ours, here)
            old = trees.lookup(reader, ancestor, here)
            if mine is None or old is None or mine.oid != old.oid:
                raise NotPlainError
            here = here.rpartition(b"/")[0]
        if not place and not reader.raw(theirs):
            raise NotPlainError


def _nearest(reader: ObjectReader, tree: GitOid, place: bytes) -> bytes:
    while place and not _is_directory(reader, tree, place):
        place = place.rpartition(b"/")[0]
    return place


def _is_directory(reader: ObjectReader, tree: GitOid, place: bytes) -> bool:
    if not place:
        return True
    entry = trees.lookup(reader, tree, place)
    return entry is not None and entry.is_tree
