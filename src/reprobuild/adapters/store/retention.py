"""What stays beside what the roots keep: policies of age and size for collection.

A record that no root keeps is of use to later runs. Its age counts from when it was made or last
chosen, whichever is later; that of content which no record names from when it was stored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from reprobuild.adapters.store.info import files
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.mark import Live, mark_drvs, mark_record, mark_root, mark_trees
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.records import parse_memo
from reprobuild.adapters.store.roots import Roots
from reprobuild.adapters.store.shards import listing
from reprobuild.errors import ReprobuildError

Wanted = TypeVar("Wanted")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a collection is asked for. None: no such limit.

    `older_than` in seconds: what is younger stays. `free` in bytes: records that were used last
    stay as long as so much becomes free without them. `max_size` in bytes: as `free`, for as much
    as the store now holds beyond it.
    """

    older_than: float | None = None
    free: int | None = None
    max_size: int | None = None

    @property
    def limited(self) -> bool:
        """Whether an amount is asked for."""
        return self.free is not None or self.max_size is not None


@dataclass(frozen=True, slots=True)
class _Candidate:
    used: float
    action: str
    name: str
    memos: tuple[str, ...] = ()


def keep_young(layout: Layout, live: Live, now: float, age: float) -> int:
    """Adds to `live` what is younger than `age` seconds; the bytes that this keeps."""
    before = now - age
    kept, old = Live(), Live()
    for candidate in _candidates(layout, live):
        if candidate.used > before:
            _try(layout, live, kept, _with_recipe, candidate)
        else:
            _try(layout, old, Live(), _with_recipe, candidate)
    sides = (live, old)
    trees, drvs, blobs = (f"{layout.root}/{kind}" for kind in ("trees", "drvs", "blobs"))
    for name in _young(trees, before, lambda n: any(side.has_tree(n) for side in sides)):
        _try(layout, live, kept, mark_trees, [name])
    for name in _young(drvs, before, lambda n: any(n in side.drvs for side in sides)):
        _try(layout, live, kept, mark_drvs, [name])
    for name in _young(blobs, before, lambda n: any(side.has_blob(n) for side in sides)):
        bare = name.removesuffix(".x")
        if len(bare) == 64:
            live.blobs.add(bytes.fromhex(bare) + (b"x" if bare != name else b""))
    return size_of(layout, kept)


def keep_recent(layout: Layout, live: Live, spare: int) -> None:
    """Adds to `live` the records that were used last, while they take no more than `spare` bytes
    that would become free without them."""
    for candidate in _candidates(layout, live):
        extra = Live()
        try:
            _with_recipe(layout, extra, candidate, live)
        except ReprobuildError:
            continue  # not whole: it goes
        size = size_of(layout, extra) + sum(map(allocated, candidate.memos))
        if size > spare:
            return  # what is older goes before what is younger, whatever its size
        spare -= size
        live.merge(extra)


def _candidates(layout: Layout, live: Live) -> list[_Candidate]:
    """Records that no root keeps, those that were used last first."""
    chosen: dict[tuple[str, str], float] = {}
    memos: dict[tuple[str, str], list[str]] = {}
    for entry in files(f"{layout.root}/chosen"):
        try:
            reference = parse_memo(read_file(entry.path), entry.name)
            used = entry.stat(follow_symlinks=False).st_mtime
        except OSError:
            continue
        if reference is not None:
            chosen[reference] = max(used, chosen.get(reference, 0.0))
            memos.setdefault(reference, []).append(entry.path)
    found: list[_Candidate] = []
    for action in listing(f"{layout.root}/records"):
        for entry in listing(action.path):
            key = (action.name, entry.name)
            if key not in live.records:
                made = entry.stat(follow_symlinks=False).st_mtime
                used = max(made, chosen.get(key, 0.0))
                found.append(_Candidate(used, *key, tuple(memos.get(key, ()))))
    return sorted(found, key=lambda c: (-c.used, c.action, c.name))


def _with_recipe(layout: Layout, into: Live, candidate: _Candidate, base: Live) -> None:
    record = mark_record(layout, into, candidate.action, candidate.name, base)
    if os.path.exists(layout.drv(record.drv.hex)):
        mark_drvs(layout, into, [record.drv.hex], base)


def _try(
    layout: Layout,
    live: Live,
    kept: Live,
    mark: Callable[[Layout, Live, Wanted, Live], None],
    wanted: Wanted,
) -> None:
    extra = Live()
    try:
        mark(layout, extra, wanted, live)
    except ReprobuildError:
        return  # what is not whole is of no use, however young
    live.merge(extra)
    kept.merge(extra)


def _young(home: str, before: float, judged: Callable[[str], bool]) -> Iterable[str]:
    # ctime: the mtime of blobs is a constant. It may lie in the future: then it is young.
    for entry in files(home):
        if not judged(entry.name) and entry.stat(follow_symlinks=False).st_ctime > before:
            yield entry.name


def size_of(layout: Layout, live: Live) -> int:
    """Bytes on the disk of what is in `live`, with the directories that were made of its trees."""
    paths = [layout.tree(raw.hex()) for raw in live.trees]
    paths += [layout.blob(raw[:32].hex(), len(raw) > 32) for raw in live.blobs]
    paths += [layout.drv(name) for name in live.drvs]
    paths += [f"{layout.root}/logs/{name}" for name in live.logs]
    paths += [layout.record(action, name) for action, name in live.records]
    home = f"{layout.root}/materialised/"
    made = [home + raw.hex() for raw in live.trees]
    made += [home + raw[:32].hex() + (".x" if len(raw) > 32 else ".f") for raw in live.blobs]
    return sum(map(allocated, paths)) + sum(allocated(path, shared=True) for path in made)


def held_bytes(layout: Layout) -> int:
    """Bytes on the disk of all that lies in the store; an inode with two names counts once."""
    total = 0
    seen: set[int] = set()
    for _, _, names, fd in os.fwalk(layout.root):
        total += os.fstat(fd).st_blocks * 512
        for name in names:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if info.st_nlink == 1 or info.st_ino not in seen:
                total += info.st_blocks * 512
            if info.st_nlink > 1:
                seen.add(info.st_ino)
    return total


def allocated(path: str, *, shared: bool = False) -> int:
    """Bytes that removing `path` frees: 0 for what is not there.

    That of another account's directory that cannot be looked into is not known and counts as 0.
    Below a directory, and of a file that is `shared`, what has a second link does not count: it
    is counted with its blob.
    """
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    if not stat.S_ISDIR(info.st_mode):
        return 0 if shared and info.st_nlink > 1 else info.st_blocks * 512
    total = 0
    with suppress(PermissionError):  # another account's, which is for it to remove
        for _, _, names, fd in os.fwalk(path):
            total += os.fstat(fd).st_blocks * 512
            for name in names:
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                total += info.st_blocks * 512 if info.st_nlink == 1 else 0
    return total


def why_short(layout: Layout, roots: Roots, young: int, most: int = 5) -> list[str]:
    """Why no more can be freed: the roots that keep most, and what a policy of age keeps."""
    sizes: list[tuple[int, str]] = []
    for name, document in roots.documents():
        live = Live()
        mark_root(layout, name, document, live)
        sizes.append((size_of(layout, live), name))
    sizes.sort(key=lambda pair: (-pair[0], pair[1]))
    lines = [f"the root {name} keeps {mebibytes(size)}" for size, name in sizes[:most]]
    if len(sizes) > most:
        lines.append(f"{len(sizes) - most} more roots keep smaller amounts each")
    if young:
        lines.append(f"{mebibytes(young)} are younger than was asked for")
    return lines


def mebibytes(size: int) -> str:
    """For people."""
    return f"{size / 2**20:.1f} MiB"
