"""Bringing back what is damaged, and removing what promises content that is then not whole.

First, equal content elsewhere is looked for (restore.py). Nothing is mended by guessing: what is
found nowhere goes, and so does every record, memo and root entry that leads to it, so that the next
run fetches or builds it again instead of finding it "here". What went of records and roots is
handed back (`Repaired.lost`, `.cut`), so that `readmit` can put it back once the content is there.
Goes in the order of collection – from what refers to what is referred to – each step durable
before the next: a repair that is cut short leaves orphans or damage, never a new dangling name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from reprobuild.adapters.store import durable, locks
from reprobuild.adapters.store.dirstack import remove_any
from reprobuild.adapters.store.gc import dead_name, from_the_top
from reprobuild.adapters.store.info import files
from reprobuild.adapters.store.layout import QUARANTINE, Layout
from reprobuild.adapters.store.names import root_name
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.records import parse_memo, parse_record
from reprobuild.adapters.store.repaired import Repaired
from reprobuild.adapters.store.restore import Restorer
from reprobuild.adapters.store.roots import MEMO_ROOT, Keep, parse_keep, with_keep
from reprobuild.adapters.store.shards import listing
from reprobuild.adapters.store.verify import survey
from reprobuild.adapters.store.verify_report import Known, Problem
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File, Tree
from reprobuild.errors import ReprobuildError

_NEEDED = re.compile(
    rf"roots/.+|(records|{QUARANTINE})/[0-9a-f]{{64}}(/[^/]+)?"
    r"|(blobs|trees|drvs)/([0-9a-f]{2})(/\4[0-9a-f]{62}(\.x)?)?",
    re.DOTALL,
)
"""Paths below the store that it makes itself."""


def repair(layout: Layout, *, jobs: int, others: Sequence[Layout] = ()) -> Repaired:
    """Hashes everything, brings back what can be, and removes what then is not what it should be.

    `others` are stores whose content may be taken.

    Raises E-STORE-BUSY while leases are out and E-STORE-WRITE when something cannot be removed.
    """
    with (
        locks.sole(layout.directory("locks") / "store", wait=False),
        durable.writing(layout.root, "while repairing"),
    ):
        report, known = survey(layout, jobs=jobs)
        restorer = Restorer(layout, known, others)
        if report.problems:
            restorer.run(report.problems)
        result = _Repair(layout, known, restorer.elsewhere).run(report.problems)
        result.restored = sorted(restorer.restored)
        result.stops = sorted({*restorer.blocked, *_in_the_way(layout, report.problems)})
        return result


def _in_the_way(layout: Layout, problems: Iterable[Problem]) -> list[str]:
    """What is not the store's and has a place that the store needs, or that collection looks into
    for what to keep."""
    top = len(layout.root) + 1
    misplaced = {p.path for p in problems if p.kind == "misplaced"}
    return [p for p in misplaced if _NEEDED.fullmatch(p[top:]) and os.path.lexists(p)]


class _Repair:
    def __init__(self, layout: Layout, known: Known, elsewhere: Set[str]) -> None:
        self._elsewhere = elsewhere
        self._layout = layout
        self._root = str(layout.root)
        self._known = known
        self._whole = _whole(known)
        self._result = Repaired()
        self._fd = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self, problems: Iterable[Problem]) -> Repaired:
        try:
            found = list(problems)
            self._materialised(found)
            stays, doomed = self._judge_records("records", self._known.records)
            _, doomed_aside = self._judge_records(QUARANTINE, self._known.aside)
            doomed |= doomed_aside
            self._roots(stays)
            memos = {
                e.path: e.name
                for e in files(f"{self._root}/chosen")
                if e.is_file(follow_symlinks=False) and not _names(e, stays)
            }
            self._remove(memos, self._result.memos)
            self._remove(doomed, self._result.records)
            self._objects()
            self._modes(found)
        finally:
            os.close(self._fd)
        result = self._result
        result.left = sorted(str(p) for p in found if self._stays_off(p))
        for names in result.lists().values():
            names.sort()
        return result

    def _stays_off(self, problem: Problem) -> bool:
        """Whether it is nothing that a repair removes, or could set right."""
        name = os.path.basename(problem.path)
        off = problem.kind == "mode" and name not in self._result.modes
        return (off or problem.kind == "misplaced") and os.path.lexists(problem.path)

    # -- the steps -----------------------------------------------------------------------------

    def _materialised(self, problems: Iterable[Problem]) -> None:
        home = f"{self._root}/materialised/"
        below = {
            p.path[len(home) :].split("/")[0]
            for p in problems
            if p.path.startswith(home)
            and not (p.kind == "missing" and p.object in self._elsewhere)  # perhaps the last copy
        }
        for entry in listing(home.rstrip("/")):
            name = entry.name
            if name.startswith("."):
                continue  # unfinished, and collection's business
            if name in below or (len(name) == 64 and name not in self._whole):
                dead = dead_name(home.rstrip("/"), name)
                durable.rename(entry.path, dead)
                remove_any(dead)  # else collection by its owner does it
                self._result.materialised.append(name)
        durable.sync_paths([home], self._fd)

    def _judge_records(
        self, home: str, good: set[tuple[str, str]]
    ) -> tuple[set[tuple[str, str]], dict[str, str]]:
        """(records that hold, files of those that do not)."""
        stays: set[tuple[str, str]] = set()
        doomed: dict[str, str] = {}
        for action in listing(f"{self._root}/{home}"):
            if not action.is_dir(follow_symlinks=False):
                continue
            for entry in _files(action.path):
                if self._record_holds(action.name, entry, good):
                    stays.add((action.name, entry.name))
                else:
                    doomed[entry.path] = entry.name
        return stays, doomed

    def _record_holds(
        self, action: str, entry: os.DirEntry[str], good: set[tuple[str, str]]
    ) -> bool:
        if (action, entry.name) not in good:
            return False
        record = parse_record(read_file(entry.path), action, entry.name, entry.path)
        if all(tree.hex in self._whole for tree in record.outputs.values()):
            return True
        if good is self._known.records:
            self._result.lost.append(record)
        return False

    def _roots(self, records: set[tuple[str, str]]) -> None:
        home = f"{self._root}/roots"
        for entry in _files(home):
            name = root_name(entry.name)
            try:
                data = read_file(entry.path)
                keep = parse_keep(name, data)
            except (OSError, ReprobuildError):
                self._remove({entry.path: name}, self._result.roots)
                continue
            left = Keep(
                tuple(tree for tree in keep.trees if tree in self._whole),
                tuple(drv for drv in keep.drvs if drv in self._known.drvs),
                tuple(record for record in keep.records if record in records),
            )
            if left == keep:
                continue
            if not name.endswith(MEMO_ROOT):
                self._result.cut[name] = data
            if name.endswith(MEMO_ROOT) or left == Keep():
                self._remove({entry.path: name}, self._result.roots)
                continue
            self._result.roots.append(name)
            unfinished = self._layout.directory("tmp") / f"root-{os.urandom(6).hex()}"
            document = with_keep(data, left)
            durable.write_document(unfinished, Path(entry.path), document, replace=True)

    def _objects(self) -> None:
        known, result = self._known, self._result
        drvs = {e.path: e.name for e in files(f"{self._root}/drvs") if e.name not in known.drvs}
        self._remove(_ours(drvs), result.drvs)
        trees = {e.path: e.name for e in files(f"{self._root}/trees")}
        damaged = {path: name for path, name in trees.items() if name not in known.trees}
        open_ones = {
            name: path
            for path, name in trees.items()
            if name in known.trees and name not in self._whole
        }
        for level in from_the_top(open_ones):
            self._remove({open_ones[name]: name for name in level}, result.incomplete)
        self._remove(_ours(damaged), result.trees)
        blobs = {e.path: e.name for e in files(f"{self._root}/blobs") if e.name not in known.blobs}
        self._remove(_ours(blobs), result.blobs)

    def _modes(self, problems: Iterable[Problem]) -> None:
        """Content that is good, but may be written to or has the time of a write."""
        homes = tuple(f"{self._root}/{home}/" for home in ("blobs", "trees", "drvs"))
        for path in sorted({p.path for p in problems if p.kind == "mode"}):
            if not path.startswith(homes) or not os.path.lexists(path):
                continue
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                durable.fchmod(fd, 0o555 if path.endswith(".x") else 0o444)
                durable.utime(fd)
            except PermissionError:  # another account's
                continue
            finally:
                os.close(fd)
            self._result.modes.append(os.path.basename(path))

    def _remove(self, paths: dict[str, str], said: list[str]) -> None:
        for path in paths:
            durable.unlink(path)
        durable.sync_paths(sorted({os.path.dirname(path) for path in paths}), self._fd)
        said += paths.values()


def _whole(known: Known) -> set[str]:
    """The trees that are here with everything below them."""
    whole: set[str] = set()
    judged: set[str] = set()
    for start in known.trees:
        stack = [start]
        while stack:
            name = stack[-1]
            tree = known.trees[name]
            children = [e.digest.hex for _, e in tree.entries if isinstance(e, Directory)]
            todo = [c for c in children if c in known.trees and c not in judged]
            if name not in judged and todo:
                stack += todo
                continue
            stack.pop()
            if name not in judged:
                judged.add(name)
                if all(child in whole for child in children) and _has_files(tree, known):
                    whole.add(name)
    return whole


def _has_files(tree: Tree, known: Known) -> bool:
    return all(
        known.blobs.get(entry.digest.hex + (".x" if entry.executable else "")) == entry.size
        for _, entry in tree.entries
        if isinstance(entry, File)
    )


def _files(directory: str) -> list[os.DirEntry[str]]:
    """The regular files of a directory: all else is misplaced there, and left."""
    return [entry for entry in listing(directory) if entry.is_file(follow_symlinks=False)]


def _names(entry: os.DirEntry[str], records: set[tuple[str, str]]) -> bool:
    try:
        return parse_memo(read_file(entry.path), entry.name) in records
    except OSError:
        return False


def _ours(paths: dict[str, str]) -> dict[str, str]:
    """Without what has no object's name: it is somebody's, and only named."""
    return {path: name for path, name in paths.items() if _is_object(name.removesuffix(".x"), path)}


def _is_object(name: str, path: str) -> bool:
    try:
        Digest.parse(name)
    except ReprobuildError:
        return False
    right = name[:2] == os.path.basename(os.path.dirname(path))
    return right and os.path.isfile(path) and not os.path.islink(path)
