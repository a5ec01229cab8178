"""The command that merges two commits without a checkout (git-merge-tree(1)), and what it says."""

from __future__ import annotations

from reprobuild.adapters.git import plumbing
from reprobuild.core.integration.backend import ConflictedPath, MergeOutcome, Stage

UNPACKED = ("-c", "core.looseCompression=0")
"""For what only writes objects that live for seconds; a diff would deflate by it as well."""


def parse_merge(out: bytes) -> MergeOutcome:
    """The output of `git merge-tree --write-tree -z --messages` (git-merge-tree(1), "OUTPUT")."""
    fields = out.split(b"\0")
    tree = plumbing.oid(fields[0])
    sides: dict[bytes, dict[int, Stage]] = {}
    position = 1
    while position < len(fields) and fields[position]:
        head, _, path = fields[position].partition(b"\t")
        mode, oid, stage = head.split(b" ")
        sides.setdefault(path, {})[int(stage)] = Stage(int(mode, 8), plumbing.oid(oid))
        position += 1
    position += 1
    messages = []
    while position < len(fields) and fields[position].isdigit():
        count = int(fields[position])
        paths = tuple(fields[position + 1 : position + 1 + count])
        kind, text = fields[position + 1 + count : position + 3 + count]
        messages.append((kind.decode(), paths, text.decode("utf-8", "replace")))
        position += 3 + count
    conflicts = tuple(
        ConflictedPath(path, s.get(1), s.get(2), s.get(3)) for path, s in sorted(sides.items())
    )
    return MergeOutcome(tree, conflicts, tuple(messages))
