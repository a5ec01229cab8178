"""Collection: removing what no root keeps, as far as a policy of age or size lets it.

Runs alone (every writer holds a lease). Deletes in the reverse order of commits – materialised
directories and records, then trees from the top, then blobs – each step durable before the next,
so that a crash at any moment leaves orphans and never a reference to nothing.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.adapters.store import dirlock, durable, locks, reserve, seen
from reprobuild.adapters.store.dirstack import remove_any
from reprobuild.adapters.store.info import Kind, files
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.mark import Live, mark
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.records import parse_memo, parse_record
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
    strange: list[str] = field(default_factory=list)
    """What lies among the store's things and is none of them: nothing is done to it."""

    @property
    def bytes(self) -> int:
        """All bytes that become free."""
        return sum(kind.bytes for kind in self.kinds.values())

    @property
    def remake_ms(self) -> int:
        """The time that the removed records' builds took."""
        return sum(record.duration_ms for record in self.records)


_SWEPT = ("logs", "tmp", "locks", "materialised", "build", "runtime")
"""Directories without objects that things are removed from."""

_NOT_OURS = (
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EBUSY),
    errno.ENXIO,
)
"""Refusals that say what lies there, and nothing of the disk: not the store's, or a mount."""

_UNFINISHED = re.compile(r"[A-Za-z]+-(\d+-)?[0-9a-f]{8,12}")
"""Names of single files below `tmp/`, of what is replaced without a session."""

_LONG_NAME = 200
"""Bytes of a name that leave room for more."""

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
        self._linked: set[str] = set()
        self._fd = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self) -> Collection:
        try:
            self._links()
            self._materialised()
            self._records()
            self._drvs()
            self._trees()
            self._blobs()
            self._leftovers()
        finally:
            os.close(self._fd)
        self._result.left.sort()
        self._result.strange = sorted(set(self._result.strange))
        return self._result

    def _links(self) -> None:
        """Directories of the store that are links: what they lead to is not gone into."""
        self._linked = {name for name in _SWEPT if os.path.islink(f"{self._root}/{name}")}
        self._result.strange += [f"{self._root}/{name}" for name in sorted(self._linked)]

    def _listing(self, home: str) -> list[os.DirEntry[str]]:
        return [] if home in self._linked else listing(f"{self._root}/{home}")

    def _objects(self, home: str) -> Iterator[os.DirEntry[str]]:
        """The files of shards that have an object's name; what else lies there is strange."""
        for shard in self._listing(home):
            if len(shard.name) != 2 or not shard.is_dir(follow_symlinks=False):
                self._result.strange.append(shard.path)
                continue
            for entry in listing(shard.path):
                if _is_hex(entry.name.removesuffix(".x")) and entry.is_file(follow_symlinks=False):
                    yield entry
                else:
                    self._result.strange.append(entry.path)

    # -- the steps -----------------------------------------------------------------------------

    def _records(self) -> None:
        doomed: list[str] = []
        for action in self._listing("records"):
            if not _is_hex(action.name) or not action.is_dir(follow_symlinks=False):
                self._result.strange.append(action.path)
                continue
            for entry in listing(action.path):
                if not _is_hex(entry.name) or not entry.is_file(follow_symlinks=False):
                    self._result.strange.append(entry.path)
                elif (action.name, entry.name) not in self._live.records:
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
            reference = parse_memo(read_file(entry.path), entry.name)
        except OSError:
            return False
        return reference in self._live.records

    def _drvs(self) -> None:
        live = self._live.drvs
        self._remove("drvs", [e.path for e in self._objects("drvs") if e.name not in live])

    def _trees(self) -> None:
        paths = {e.name: e.path for e in self._objects("trees")}
        doomed = {name: path for name, path in paths.items() if not self._live.has_tree(name)}
        for level in from_the_top(doomed):
            self._remove("trees", [doomed[name] for name in level])

    def _blobs(self) -> None:
        found = self._objects("blobs")
        self._remove("blobs", [e.path for e in found if not self._live.has_blob(e.name)])
        if not self._result.dry_run:
            temporary = self._layout.directory("tmp") / f"seen-{os.getpid()}-{os.urandom(4).hex()}"
            with suppress(OSError):  # a full disk may refuse: it is a memo
                seen.tidy(self._layout.seen, str(temporary), self._live.blobs.__contains__)

    def _materialised(self) -> None:
        home = f"{self._root}/materialised"
        removed = 0
        for entry in self._listing("materialised"):
            hex_digest, _, suffix = entry.name.partition(".")
            if entry.name.startswith("."):
                if self._session_lives(entry.name[1:].rsplit("-", 1)[0]):
                    continue
            elif suffix:
                if self._live.has_blob(hex_digest + (".x" if suffix == "x" else "")):
                    continue
            elif self._live.has_tree(hex_digest):
                continue
            removed += not self._result.dry_run
            self._clear("materialised", entry.path, _renamed, shared=True)
        if removed:
            durable.sync_paths([home], self._fd)

    def _leftovers(self) -> None:
        for session in self._listing("tmp"):
            if not session.is_dir(follow_symlinks=False) and not (
                session.is_file(follow_symlinks=False) and _UNFINISHED.fullmatch(session.name)
            ):
                self._result.strange.append(session.path)
            elif not self._session_lives(session.name):
                self._clear("tmp", session.path)
        for work in self._listing("build"):
            # Nothing is built now, so their owners are dead; `failed-…` was kept on request.
            if work.name.startswith(("build-", "shell-")):
                self._directory("build", work)
        for shared in self._listing("runtime"):
            if shared.name != ETC_NAME:  # of another version, which makes it again
                self._directory("runtime", shared)
        logs = self._listing("logs")
        self._remove("logs", [e.path for e in logs if e.name not in self._live.logs])
        for lock in self._listing("locks"):
            if lock.name.startswith("action-") and not self._result.dry_run:
                locks.remove_unheld(Path(lock.path))

    # -- helpers -------------------------------------------------------------------------------

    def _session_lives(self, name: str) -> bool:
        path = os.path.join(self._root, "tmp", name)
        try:
            if "tmp" in self._linked or not stat.S_ISDIR(os.lstat(path).st_mode):
                return False
            fd = dirlock.try_directory(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            return False  # nobody can have locked it; who removes it will see
        if fd is None:
            return os.path.lexists(path)
        os.close(fd)
        return False

    def _directory(self, kind: str, entry: os.DirEntry[str]) -> None:
        """Removes a directory of ours; what only has such a name is strange."""
        if entry.is_dir(follow_symlinks=False):
            self._clear(kind, entry.path)
        else:
            self._result.strange.append(entry.path)

    def _clear(
        self,
        kind: str,
        path: str,
        before: Callable[[str], str] | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """Removes whatever lies at `path`, under the name that `before` gives it."""
        size = allocated(path, shared=shared)
        if not self._result.dry_run:
            try:
                path = before(path) if before is not None else path
                if not remove_any(path):
                    self._result.left.append(path)
                    return
            except OSError as error:
                if error.errno not in _NOT_OURS:
                    raise
                self._result.strange.append(path)
                return
        self._add(kind, size)

    def _remove(self, kind: str, paths: list[str]) -> None:
        directories: set[str] = set()
        for path in paths:
            try:
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    self._result.strange.append(path)
                    continue
            except FileNotFoundError:
                continue
            size = allocated(path)
            if not self._result.dry_run:
                durable.unlink(path)
                directories.add(os.path.dirname(path))
            self._add(kind, size)
        durable.sync_paths(sorted(directories), self._fd)

    def _add(self, kind: str, size: int) -> None:
        before = self._result.kinds.get(kind, Kind(0, 0))
        self._result.kinds[kind] = Kind(before.count + 1, before.bytes + size)


def _renamed(path: str) -> str:
    """What was materialised, under a dead name: one that is half gone must not be taken for whole
    after a crash."""
    home, name = os.path.split(path)
    if name.startswith("."):
        return path
    dead = f"{home}/.dead-{name}"
    if os.path.lexists(dead):  # another account's, who has not collected since
        dead = dead_name(home, name)
    elif len(os.fsencode(name)) > _LONG_NAME:
        dead = dead_name(home, "")
    durable.rename(path, dead)
    return dead


def dead_name(home: str, name: str) -> str:
    """A free name for what is being removed; that of the thing is part of it, where it is short."""
    rest = f"-{name}" if 0 < len(os.fsencode(name)) <= _LONG_NAME else ""
    return f"{home}/.dead-{os.urandom(6).hex()}{rest}"


def _is_hex(name: str) -> bool:
    return len(name) == 64 and not name.strip("0123456789abcdef")


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
