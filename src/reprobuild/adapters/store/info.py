"""What a store holds, in numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.paths import FORMAT
from reprobuild.adapters.store.shards import listing


@dataclass(frozen=True, slots=True)
class Kind:
    """Number and bytes (as allocated on the disk) of one kind of object."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Info:
    """Counts by kind; `materialised` counts directories, without bytes shared with blobs."""

    path: str
    format: int
    kinds: dict[str, Kind]
    roots: int
    free_bytes: int


def files(directory: str) -> Iterator[os.DirEntry[str]]:
    """All entries two levels down: of `blobs/ab/*` and its like, in order."""
    for shard in listing(directory):
        if shard.is_dir(follow_symlinks=False):
            yield from listing(shard.path)


def info(layout: Layout) -> Info:
    """Counts everything by looking at it: nothing is cached."""
    root = str(layout.root)
    kinds: dict[str, Kind] = {}
    for kind in ("blobs", "trees", "drvs", "records"):
        kinds[kind] = _sum(files(f"{root}/{kind}"))
    kinds["logs"] = _sum(iter(listing(f"{root}/logs")))
    made = [e for e in listing(f"{root}/materialised") if not e.name.startswith(".")]
    kinds["materialised"] = Kind(len(made), 0)
    roots = len(listing(f"{root}/roots"))
    return Info(root, FORMAT, kinds, roots, durable.free_bytes(layout.root))


def _sum(entries: Iterator[os.DirEntry[str]]) -> Kind:
    count = size = 0
    for entry in entries:
        count += 1
        size += entry.stat(follow_symlinks=False).st_blocks * 512
    return Kind(count, size)
