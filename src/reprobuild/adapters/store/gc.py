"""Collection: removing what no root keeps, as far as a policy of age or size lets it.

Runs alone (every writer holds a lease). Deletes in the reverse order of commits – materialised
directories and records, then trees from the top, then blobs – each step durable before the next,
so that a crash at any moment leaves orphans and never a reference to nothing.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.adapters.store import dirlock, durable, locks, reserve, seen
from reprobuild.adapters.store.dirstack import remove_any
from reprobuild.adapters.store.info import Kind, files
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.mark import Live, mark
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.records import parse_record, parse_reference
from reprobuild.adapters.store.retention import (
    Policy,
    allocated,
    held_bytes,
    keep_recent,
    keep_young,
    why_short,
)
from reprobuild.adapters.store.roots import Roots
from reprobuild.adapters.store.shards import listing
from reprobuild.core.digest import tagged
from reprobuild.core.sandboxenv import ETC_NAME
from reprobuild.core.tree import DOMAIN, Directory, decode
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class DoomedRecord:
    """A record that goes: what it would cost to make its outputs again, in milliseconds."""

    name: str
    action: str
    record: str
    duration_ms: int


@dataclass(slots=True)
class Collection:
    """What was (or, in a dry run, would be) removed; bytes as allocated on the disk."""

    dry_run: bool
    kinds: dict[str, Kind] = field(default_factory=dict)
    records: list[DoomedRecord] = field(default_factory=list)
    asked: int | None = None
    """Bytes that the policy wanted to become free."""
    short: list[str] = field(default_factory=list)
    """Why no more became free, where that is less than was asked for."""
    left: list[str] = field(default_factory=list)
    """What could not be removed, because it belongs to another account."""

    @property
    def bytes(self) -> int:
        """All bytes that become free."""
        return sum(kind.bytes for kind in self.kinds.values())

    @property
    def remake_ms(self) -> int:
        """The time that the removed records' builds took."""
        return sum(record.duration_ms for record in self.records)


ALL = Policy()
"""Everything that no root keeps goes."""


def collect(
    layout: Layout, roots: Roots, *, dry_run: bool, wait: bool, policy: Policy = ALL
) -> Collection:
    """Removes what no root keeps and the policy does not spare.

    Raises E-STORE-BUSY while leases are out (unless `wait`), E-STORE-ROOT for a root that does
    not say what it keeps and E-STORE-DAMAGED or E-STORE-MISSING when what is kept cannot be
    followed: then nothing at all is removed.
    """
    if not dry_run:
        reserve.give_up_when_full(layout.root)
    with (
        locks.sole(layout.directory("locks") / "store", wait=wait),
        durable.writing(layout.root, "while collecting"),
    ):
        stale = roots.stale_links()
        if not dry_run:
            for name in stale:
                roots.remove(name)
        live = mark(layout, roots, stale)
        young = 0
        if policy.older_than is not None:
            young = keep_young(layout, live, time.time(), policy.older_than)
        asked = None
        if policy.limited:
            asked = _asked(layout, policy)
            spare = _Sweep(layout, live, dry_run=True).run().bytes - asked
            if spare > 0:
                keep_recent(layout, live, spare)
        result = _Sweep(layout, live, dry_run).run()
        result.asked = asked
        if asked is not None and result.bytes < asked:
            result.short = why_short(layout, roots, young)
        if not dry_run:
            reserve.set_aside(layout.root)
        return result


def _asked(layout: Layout, policy: Policy) -> int:
    """Bytes that have to become free for both limits to be met."""
    wanted = policy.free or 0
    if policy.max_size is not None:
        wanted = max(wanted, held_bytes(layout) - policy.max_size)
    return max(0, wanted)


class _Sweep:
    def __init__(self, layout: Layout, live: Live, dry_run: bool) -> None:
        self._root = str(layout.root)
        self._layout = layout
        self._live = live
        self._result = Collection(dry_run)
        self._fd = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self) -> Collection:
        try:
            self._materialised()
            self._records()
            self._drvs()
            self._trees()
            self._blobs()
            self._leftovers()
        finally:
            os.close(self._fd)
        return self._result

    # -- the steps -----------------------------------------------------------------------------

    def _records(self) -> None:
        doomed: list[str] = []
        for action in listing(f"{self._root}/records"):
            for entry in listing(action.path):
                if (action.name, entry.name) not in self._live.records:
                    doomed.append(entry.path)
                    self._note_record(action.name, entry)
        memos = [e.path for e in files(f"{self._root}/chosen") if not self._chosen_stays(e)]
        self._remove("memos", memos)  # before what they name
        self._remove("records", doomed)
        if not self._result.dry_run:
            for directory in sorted({os.path.dirname(path) for path in doomed}):
                _remove_if_empty(directory)

    def _note_record(self, action: str, entry: os.DirEntry[str]) -> None:
        name, duration = "", 0
        try:
            data = read_file(entry.path)
            record = parse_record(data, action, entry.name, entry.path)
            name, duration = record.name, record.duration_ms
        except (OSError, ReprobuildError):
            pass  # damaged: it goes all the same, and made nothing that can be costed
        self._result.records.append(DoomedRecord(name, action, entry.name, duration))

    def _chosen_stays(self, entry: os.DirEntry[str]) -> bool:
        try:
            reference = parse_reference(read_file(entry.path))
        except OSError:
            return False
        return reference in self._live.records

    def _drvs(self) -> None:
        live = self._live.drvs
        home = f"{self._root}/drvs"
        self._remove("drvs", [e.path for e in files(home) if e.name not in live])

    def _trees(self) -> None:
        paths = {e.name: e.path for e in files(f"{self._root}/trees")}
        doomed = {name: path for name, path in paths.items() if not self._live.has_tree(name)}
        for level in from_the_top(doomed):
            self._remove("trees", [doomed[name] for name in level])

    def _blobs(self) -> None:
        home = f"{self._root}/blobs"
        self._remove("blobs", [e.path for e in files(home) if not self._live.has_blob(e.name)])
        if not self._result.dry_run:
            temporary = self._layout.directory("tmp") / f"seen-{os.getpid()}-{os.urandom(4).hex()}"
            with suppress(OSError):  # a full disk may refuse: it is a memo
                seen.tidy(self._layout.seen, str(temporary), self._live.blobs.__contains__)

    def _materialised(self) -> None:
        home = f"{self._root}/materialised"
        removed = 0
        for entry in listing(home):
            hex_digest, _, suffix = entry.name.partition(".")
            if entry.name.startswith("."):
                if self._session_lives(entry.name[1:].rsplit("-", 1)[0]):
                    continue
            elif suffix:
                if self._live.has_blob(hex_digest + (".x" if suffix == "x" else "")):
                    continue
            elif self._live.has_tree(hex_digest):
                continue
            self._count("materialised", entry.path, shared=True)
            if not self._result.dry_run:
                removed += 1
                self._remove_materialised(home, entry)
        if removed:
            durable.sync_paths([home], self._fd)

    def _remove_materialised(self, home: str, entry: os.DirEntry[str]) -> None:
        if entry.name.startswith("."):
            self._remove_any(entry.path)
            return
        # Renamed first: one that is half gone must not be taken for whole after a crash.
        dead = f"{home}/.dead-{entry.name}"
        if os.path.lexists(dead):  # another account's, who has not collected since
            dead = f"{home}/.dead-{os.urandom(4).hex()}-{entry.name}"
        durable.rename(entry.path, dead)
        self._remove_any(dead)

    def _remove_any(self, path: str) -> None:
        if not remove_any(path):
            self._result.left.append(path)

    def _leftovers(self) -> None:
        for session in listing(os.path.join(self._root, "tmp")):
            if not self._session_lives(session.name):
                self._count("tmp", session.path)
                if not self._result.dry_run:
                    self._remove_any(session.path)
        for work in listing(f"{self._root}/build"):
            # Nothing is built now, so their owners are dead; `failed-…` was kept on request.
            if work.name.startswith(("build-", "shell-")):
                self._count("build", work.path)
                if not self._result.dry_run:
                    self._remove_any(work.path)
        for shared in listing(f"{self._root}/runtime"):
            if shared.name != ETC_NAME:  # of another version, which makes it again
                self._count("runtime", shared.path)
                if not self._result.dry_run:
                    self._remove_any(shared.path)
        logs = listing(f"{self._root}/logs")
        self._remove("logs", [e.path for e in logs if e.name not in self._live.logs])
        for lock in listing(f"{self._root}/locks"):
            if lock.name.startswith("action-") and not self._result.dry_run:
                locks.remove_unheld(Path(lock.path))

    # -- helpers -------------------------------------------------------------------------------

    def _session_lives(self, name: str) -> bool:
        path = Path(self._root) / "tmp" / name
        if not path.is_dir():
            return False
        fd = dirlock.try_directory(path)
        if fd is None:
            return path.exists()
        os.close(fd)
        return False

    def _remove(self, kind: str, paths: list[str]) -> None:
        directories: set[str] = set()
        for path in paths:
            self._count(kind, path)
            if not self._result.dry_run:
                with suppress(IsADirectoryError):  # not the store's; verification names it
                    durable.unlink(path)
                directories.add(os.path.dirname(path))
        durable.sync_paths(sorted(directories), self._fd)

    def _count(self, kind: str, path: str, *, shared: bool = False) -> None:
        before = self._result.kinds.get(kind, Kind(0, 0))
        size = allocated(path, shared=shared)
        self._result.kinds[kind] = Kind(before.count + 1, before.bytes + size)


def _remove_if_empty(directory: str) -> None:
    try:
        durable.rmdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise


def from_the_top(doomed: dict[str, str]) -> Iterable[list[str]]:
    """The doomed trees in levels: no tree comes after one that it refers to."""
    children: dict[str, list[str]] = {}
    parents: dict[str, int] = dict.fromkeys(doomed, 0)
    for name, path in doomed.items():
        children[name] = [child for child in _children(name, path) if child in doomed]
        for child in children[name]:
            parents[child] += 1
    level = [name for name, count in parents.items() if count == 0]
    while level:
        yield level
        below: list[str] = []
        for name in level:
            for child in children[name]:
                parents[child] -= 1
                if parents[child] == 0:
                    below.append(child)
        level = below


def _children(name: str, path: str) -> set[str]:
    try:
        data = read_file(path)
        if tagged(DOMAIN, data).hex != name:
            return set()
        return {e.digest.hex for _, e in decode(data).entries if isinstance(e, Directory)}
    except (OSError, ReprobuildError):
        return set()  # damaged: it refers to nothing that anyone could reach through it
