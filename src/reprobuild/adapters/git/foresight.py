"""Which file contents a row of heads will have merged, told from trees alone.

It decides nothing: a guess that turns out wrong is work for nothing, as each merge looks up what
it needs by the very blobs.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprobuild.adapters.git import trees
from reprobuild.adapters.git.contents import Chain
from reprobuild.adapters.git.objects import ObjectReader
from reprobuild.adapters.git.threeway import FILES, Changes
from reprobuild.adapters.git.treewrite import Side
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change


def foreseen(
    reader: ObjectReader,
    changes_of: Changes,
    start: GitOid,
    coming: Iterable[tuple[GitOid, GitOid]],
) -> list[Chain]:
    """The files that are merged when changes (from tree, to tree) are put on top of `start`.

    It ends before the first one that is not plain, and after one that moves attributes.
    """
    now: dict[bytes, Side | None] = {}
    chains: dict[bytes, Chain] = {}
    for old, new in coming:
        changes = changes_of(old, new)
        if changes is None:
            break
        moved: dict[bytes, Side | None] = {}
        steps: list[tuple[bytes, Side, Side, Side]] = []
        for change in changes:
            path, before, after = change.path, *_sides(change)
            chain = chains.get(path)
            if chain is not None:
                here: Side | None = chain.now
            elif path in now:
                here = now[path]
            else:
                entry = trees.lookup(reader, start, path)
                here = (entry.mode, entry.oid) if entry is not None else None
            if chain is None and here == after:
                continue
            if chain is None and here == before:
                moved[path] = after
            elif here is not None and before is not None and after is not None:
                steps.append((path, here, before, after))
            else:
                return list(chains.values())
        if not all(side[0] in FILES for _, *sides in steps for side in sides):
            break
        now.update(moved)
        for path, here, before, after in steps:
            chains.setdefault(path, Chain(path, here, [])).steps.append((before, after))
        if any(c.path.rpartition(b"/")[2] == trees.ATTRIBUTES for c in changes):
            break
    return list(chains.values())


def _sides(change: Change) -> tuple[Side | None, Side | None]:
    before = (change.old_mode, change.old) if change.old is not None else None
    after = (change.new_mode, change.new) if change.new is not None else None
    return before, after
