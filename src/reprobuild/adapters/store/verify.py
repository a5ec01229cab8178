"""Hashing everything again, and naming all that is not as it should be.

Both a product (`reprobuild store verify`) and the oracle at the end of the store's tests. Looks
at files only: nothing it reports comes from a cache.
"""

from __future__ import annotations

import os
from pathlib import Path

from reprobuild.adapters.store import seen
from reprobuild.adapters.store.helpers import Threads
from reprobuild.adapters.store.layout import BESIDE, DIRECTORIES, QUARANTINE, Layout
from reprobuild.adapters.store.names import root_name
from reprobuild.adapters.store.records import is_derivation, parse_record, parse_reference
from reprobuild.adapters.store.roots import parse_keep
from reprobuild.adapters.store.shards import Found, check_shard, listing, objects
from reprobuild.adapters.store.verify_made import check_materialised
from reprobuild.adapters.store.verify_report import Known, Problem, Report
from reprobuild.core import node
from reprobuild.core.blake import tagged_hex
from reprobuild.core.digest import Digest
from reprobuild.core.node import DOMAIN
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from typing import Any

    from reprobuild.adapters.store.crew import Crew

_MANY = 1500
"""From so many blobs on, when most are short, other processes are worth their start."""


def verify(layout: Layout, *, jobs: int) -> Report:
    """The report on a store; never raises for what it finds. `jobs` threads hash."""
    report = survey(layout, jobs=jobs)[0]
    for problem in report.problems:
        kind, _, name = problem.object.partition(" ")
        if (problem.kind, kind) == ("damaged", "blob"):
            seen.forget(layout.seen, name)  # else it would be confirmed as long as no time moves
    return report


def survey(layout: Layout, *, jobs: int) -> tuple[Report, Known]:
    """`verify`, with all that was found to be good."""
    report = Report()
    known = Known()
    root = str(layout.root)
    for entry in listing(root):
        if entry.name not in (*DIRECTORIES, *BESIDE):
            _misplaced(report, entry.path)
    _content(root, report, known, jobs)
    _drvs(f"{root}/drvs", report, known)
    _records(f"{root}/records", report, known, known.records)
    _records(f"{root}/{QUARANTINE}", report, known, known.aside)
    _chosen(f"{root}/chosen", report, known)
    _roots(f"{root}/roots", report, known)
    check_materialised(f"{root}/materialised", report, known)
    # What is here, but damaged, was named once; its referrers need not name it again.
    damaged = {problem.object for problem in report.problems if problem.kind == "damaged"}
    report.problems = [p for p in report.problems if p.kind != "missing" or p.object not in damaged]
    # What somebody removed between being listed and being read is not damage.
    report.problems = [
        p for p in report.problems if p.kind != "damaged" or os.path.lexists(_within(p.path))
    ]
    report.problems.sort(key=lambda problem: (problem.path, problem.kind, problem.reason))
    return report, known


def _within(path: str) -> str:
    """The path, or the beginning of it that is no longer than the kernel takes."""
    return path if len(os.fsencode(path)) < 4000 else path[:1000].rpartition("/")[0]


# -- objects in shards ---------------------------------------------------------------------------


def _shards(home: str, report: Report) -> list[str]:
    paths: list[str] = []
    for shard in listing(home):
        if len(shard.name) == 2 and shard.is_dir(follow_symlinks=False):
            paths.append(shard.path)
        else:
            _misplaced(report, shard.path)
    return paths


def _read(fd: int, size: int, why: str) -> tuple[bytes, str]:
    """All that an open object holds, and why it could not be read."""
    if fd < 0:
        return b"", why
    try:
        with open(fd, "rb", buffering=0) as file:
            data = file.read(size + 1)
            while more := file.read(2**20):
                data += more
    except OSError as error:
        return b"", f"unreadable: {error.strerror}"
    return data, ""


def _content(root: str, report: Report, known: Known, jobs: int) -> None:
    """Blobs and directory nodes: the nodes are looked at while others hash blobs."""
    found, trees = Found(), _Trees(report, known)
    threads = Threads(alone=jobs <= 1)
    crew: Crew | None = None
    nodes = _shards(f"{root}/trees", report)

    def done(shard: str, answer: Any) -> None:
        if answer is None:
            check_shard(shard, found, threads)
        else:
            found.add(answer)

    try:
        for number, shard in enumerate(_shards(f"{root}/blobs", report)):
            if jobs > 1 and crew is None and _many_short(found):
                from reprobuild.adapters.store.crew import Crew

                crew = Crew("shard", lambda: (None, -1), done, worth=_MANY)
            while crew is not None:
                if crew.offer(shard, shard, found.count // number):
                    break
                if not nodes:
                    check_shard(shard, found, threads)
                    break
                trees.shard(nodes.pop())
            else:
                check_shard(shard, found, threads)
        for shard in nodes:
            trees.shard(shard)
        if crew is not None:
            crew.settle()
        threads.settle()
    finally:
        threads.close()
        if crew is not None:
            crew.close()
    report.problems += [Problem(*problem) for problem in found.problems]
    report.blobs += found.count
    report.bytes += found.bytes
    known.blobs, known.inodes = found.blobs, found.inodes
    trees.references()


def _many_short(found: Found) -> bool:
    return found.count > _MANY and found.bytes < found.count * 2**15


class _Trees:
    """Directory nodes: a shard at a time, and at the end whether all that they refer to is here."""

    def __init__(self, report: Report, known: Known) -> None:
        self._report = report
        self._known = known
        self._paths: dict[str, str] = {}
        self._files: set[tuple[bytes, bytes, int]] = set()
        self._below: set[bytes] = set()

    def shard(self, shard: str) -> None:
        """Hashes and reads the nodes of a shard."""
        report = self._report
        for name, path, fd, info, why in objects(shard, report.say, modes=False):
            report.trees += 1
            report.bytes += info.st_size
            data, reason = _read(fd, info.st_size, why)
            if not reason and tagged_hex(DOMAIN, data) != name:
                reason = "another digest"
            if not reason:
                try:
                    rows = node.rows(data)
                except node.NodeError as error:
                    reason = str(error)
            if reason:
                report.say("damaged", f"tree {name}", path, reason)
                continue
            self._known.trees.put(name, data)
            self._paths[name] = path
            for kind, _, value, size in rows:
                if kind == b"d":
                    self._below.add(value)
                elif kind != b"l":
                    self._files.add((kind, value, size))

    def references(self) -> None:
        """Names what is missing, with all that refers to it."""
        blobs, trees = self._known.blobs, self._known.trees
        whole = all(
            blobs.get(value.hex() + ".x" if kind == b"x" else value.hex()) == size
            for kind, value, size in self._files
        ) and all(value.hex() in trees for value in self._below)
        if whole:
            return
        for name, path in self._paths.items():
            for kind, child, value, size in node.rows(trees.bytes(name)):
                self._reference(path, kind, child, value.hex(), size)

    def _reference(self, path: str, kind: bytes, child: bytes, key: str, size: int) -> None:
        reason = f"referred to as {child.decode('utf-8', 'backslashreplace')}"
        if kind == b"d":
            if key not in self._known.trees:
                _missing(self._report, f"tree {key}", path, reason)
        elif kind != b"l":
            key += ".x" if kind == b"x" else ""
            have = self._known.blobs.get(key)
            if have != size:
                if have is not None:
                    reason += f" with {size} bytes, while it has {have}"
                _missing(self._report, f"blob {key}", path, reason)


def _drvs(home: str, report: Report, known: Known) -> None:
    for shard in _shards(home, report):
        for name, path, fd, info, why in objects(shard, report.say, modes=False):
            report.drvs += 1
            report.bytes += info.st_size
            data, reason = _read(fd, info.st_size, why)
            if not reason and not is_derivation(Digest(name), data):
                reason = "another digest"
            if reason:
                report.say("damaged", f"drv {name}", path, reason)
            else:
                known.drvs.add(name)


# -- documents -----------------------------------------------------------------------------------


def _records(home: str, report: Report, known: Known, good: set[tuple[str, str]]) -> None:
    for action in listing(home):
        if len(action.name) != 64 or not action.is_dir(follow_symlinks=False):
            _misplaced(report, action.path)
            continue
        for entry in listing(action.path):
            report.records += 1
            try:
                data = Path(entry.path).read_bytes()
                record = parse_record(data, action.name, entry.name, Path(entry.path))
            except OSError as error:
                reason = f"unreadable: {error.strerror}"
                report.problems.append(
                    Problem("damaged", f"record {entry.name}", entry.path, reason)
                )
                continue
            except ReprobuildError as error:
                reason = str(error.facts.get("reason", error.message))
                report.problems.append(
                    Problem("damaged", f"record {entry.name}", entry.path, reason)
                )
                continue
            report.bytes += len(data)
            good.add((action.name, entry.name))
            for output, tree in record.outputs.items():
                if tree.hex not in known.trees:
                    _missing(report, f"tree {tree.hex}", entry.path, f"output {output}")


def _chosen(home: str, report: Report, known: Known) -> None:
    for shard in _shards(home, report):
        for name, path, fd, info, why in objects(shard, report.say, modes=False):
            data, reason = _read(fd, info.st_size, why)
            reference = None if reason else parse_reference(data)
            # A memo that a power failure emptied is as good as none; one that dangles is not.
            if reference is not None and reference not in known.records:
                _missing(report, f"record {reference[1]}", path, f"chosen for {name}")


def _roots(home: str, report: Report, known: Known) -> None:
    for entry in listing(home):
        report.roots += 1
        name = root_name(entry.name)
        try:
            keep = parse_keep(name, Path(entry.path).read_bytes())
        except FileNotFoundError:  # somebody removed it meanwhile
            report.roots -= 1
            continue
        except OSError as error:
            reason = f"unreadable: {error.strerror}"
            report.problems.append(Problem("damaged", f"root {name}", entry.path, reason))
            continue
        except ReprobuildError as error:
            report.problems.append(Problem("damaged", f"root {name}", entry.path, error.message))
            continue
        for tree in keep.trees:
            if tree not in known.trees:
                _missing(report, f"tree {tree}", entry.path, f"kept by root {name}")
        for drv in keep.drvs:
            if drv not in known.drvs:
                _missing(report, f"drv {drv}", entry.path, f"kept by root {name}")
        for action, record in keep.records:
            if (action, record) not in known.records:
                _missing(report, f"record {record}", entry.path, f"kept by root {name}")


def _misplaced(report: Report, path: str) -> None:
    report.problems.append(Problem("misplaced", os.path.basename(path), path, "not the store's"))


def _missing(report: Report, name: str, path: str, reason: str) -> None:
    report.problems.append(Problem("missing", name, path, reason))
