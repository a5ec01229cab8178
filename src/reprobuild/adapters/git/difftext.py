"""The text of `git diff --binary --full-index` between two trees, made by two processes or more.

A patch is the texts of its paths in their order, and each path's text depends on its own two
blobs and on its attributes alone, unless there are renames. git looks for those only where one
path is gone and another is new (git-diff(1), `-M`; copies only by `-C`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from reprobuild.adapters.git.background import aside, cores
from reprobuild.adapters.git.objects import GITLINK
from reprobuild.adapters.git.plumbing import stream
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change

_DIFF = ("diff", "--binary", "--full-index")
_CHUNK = 1 << 20
_WORTH = 1 << 18
"""Bytes of files from which a second process is worth its start."""
_LARGE = 1 << 26
"""Bytes of files from which a patch is streamed: pieces wait for their turn in memory."""
_ARGUMENTS = 1 << 16
"""Bytes of paths that a command line is trusted to take."""


def patch_text(
    scratch: Scratch, old: GitOid, new: GitOid, changes: Sequence[Change] | None
) -> Iterator[bytes]:
    """The patch in chunks; `changes` are what differs, None where that is much.

    The work tree must show the attributes of these paths. Raises as `plumbing.run`.
    """
    pieces = _pieces(scratch, changes) if changes is not None else []
    if len(pieces) < 2:
        argv = (*_DIFF, old.hex, new.hex)
        with stream(argv, env=scratch.roomy, cwd=scratch.work_tree) as out:
            while chunk := out.read(_CHUNK):
                yield chunk
        return
    commands = [
        ("--literal-pathspecs", *_DIFF, old.hex, new.hex, "--", *map(os.fsdecode, paths))
        for paths in pieces
    ]
    env, cwd = scratch.roomy, scratch.work_tree
    with ExitStack() as open_ones:
        results = [
            open_ones.enter_context(aside(argv, env=env, cwd=cwd, directory=scratch.root))
            for argv in commands[1:]
        ]
        with stream(commands[0], env=env, cwd=cwd) as out:
            while chunk := out.read(_CHUNK):
                yield chunk
        for result in results:
            file = result()
            while chunk := file.read(_CHUNK):
                yield chunk


def _pieces(scratch: Scratch, changes: Sequence[Change]) -> list[list[bytes]]:
    """The paths in as many runs as are worth a process each."""
    gone, fresh = any(c.new is None for c in changes), any(c.old is None for c in changes)
    length = sum(len(c.path) + 1 for c in changes)
    if (gone and fresh) or length > _ARGUMENTS or len(changes) < 2 or cores() < 2:
        return []
    blobs = [
        oid
        for c in changes
        for mode, oid in ((c.old_mode, c.old), (c.new_mode, c.new))
        if oid is not None and mode != GITLINK
    ]
    known = dict(zip(blobs, scratch.reader.sizes(blobs), strict=True))
    weights = [sum(known.get(o, 0) for o in (c.old, c.new) if o is not None) for c in changes]
    if not _WORTH <= sum(weights) <= _LARGE:
        return []
    share = sum(weights) / min(cores(), len(changes))
    pieces: list[list[bytes]] = [[]]
    filled = 0.0
    for change, weight in zip(changes, weights, strict=True):
        if pieces[-1] and filled + weight / 2 > share * len(pieces):
            pieces.append([])
        pieces[-1].append(change.path)
        filled += weight
    return pieces
