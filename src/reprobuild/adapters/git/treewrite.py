"""Writing tree objects: a directory with some of its paths set or taken away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter

from reprobuild.adapters.git.objects import ObjectReader, RawTree
from reprobuild.core.digest import GitOid

Side = tuple[int, GitOid]
"""What one side has at a path: mode and object."""

Write = Callable[[str, bytes], GitOid]
"""Stores an object of a kind and returns its name."""

_TREE = b"40000"
_MODES = frozenset({_TREE, b"160000", b"120000", b"100644", b"100755"})


class NotPlainError(Exception):
    """Something that git would judge in its own way."""


def rewritten(
    reader: ObjectReader, write: Write, tree: GitOid | None, edits: Mapping[bytes, Side | None]
) -> GitOid | None:
    """The directory (None: an empty one) with its edits; None when nothing is left of it.

    An edit of None takes a path away. Raises NotPlainError where a file would take a directory's
    place, and for modes that git would tidy on its way.
    """
    entries: RawTree = dict(reader.raw(tree)) if tree is not None else {}
    if not _MODES.issuperset(map(itemgetter(0), entries.values())):
        raise NotPlainError
    below: dict[bytes, dict[bytes, Side | None]] = {}
    here: dict[bytes, Side] = {}
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
        child = rewritten(reader, write, GitOid(old[1].hex()) if old else None, deeper)
        if child is not None:
            entries[name] = (_TREE, bytes.fromhex(child.hex))
    for name, (mode, oid) in here.items():
        written = b"%o" % mode
        if written not in _MODES or entries.get(name, (b"",))[0] == _TREE:
            raise NotPlainError
        entries[name] = (written, bytes.fromhex(oid.hex))
    if not entries:
        return None
    order = sorted(entries.items(), key=_place)
    made = write("tree", b"".join(b"%b %b\0%b" % (m, name, oid) for name, (m, oid) in order))
    reader.keep(made, dict(order))
    return made


def _place(entry: tuple[bytes, tuple[bytes, bytes]]) -> bytes:
    """What git sorts an entry by: a directory as if its name ended in a slash."""
    name, (mode, _) = entry
    return name + b"/" if mode == _TREE else name
