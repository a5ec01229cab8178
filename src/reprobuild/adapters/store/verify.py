"""Hashing everything again, and naming all that is not as it should be.

Both a product (`reprobuild store verify`) and the oracle at the end of the store's tests. Looks
at files only: nothing it reports comes from a cache.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.hashing import content_problem
from reprobuild.adapters.store.info import listing
from reprobuild.adapters.store.layout import BESIDE, DIRECTORIES, QUARANTINE, Layout
from reprobuild.adapters.store.names import root_name
from reprobuild.adapters.store.records import (
    is_derivation,
    parse_record,
    parse_reference,
)
from reprobuild.adapters.store.roots import parse_keep
from reprobuild.adapters.store.verify_made import check_materialised
from reprobuild.adapters.store.verify_report import Known, Problem, Report
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.tree import DOMAIN, Directory, File, decode
from reprobuild.errors import ReprobuildError

_OBJECT = re.compile(r"[0-9a-f]{64}(\.x)?\Z")


def verify(layout: Layout, *, jobs: int) -> Report:
    """The report on a store; never raises for what it finds. `jobs` threads hash."""
    return survey(layout, jobs=jobs)[0]


def survey(layout: Layout, *, jobs: int) -> tuple[Report, Known]:
    """`verify`, with all that was found to be good."""
    report = Report()
    known = Known()
    root = str(layout.root)
    for entry in listing(root):
        if entry.name not in (*DIRECTORIES, *BESIDE):
            _misplaced(report, entry.path)
    _blobs(f"{root}/blobs", report, known, jobs)
    _trees(f"{root}/trees", report, known)
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


def _objects(shard: str, report: Report, *, modes: bool) -> Iterator[tuple[str, str, int]]:
    """(name, path, size) of the objects that lie right."""
    for entry in listing(shard):
        match = _OBJECT.match(entry.name)
        if not match or (match[1] and not modes) or entry.name[:2] != os.path.basename(shard):
            _misplaced(report, entry.path)
            continue
        info = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode):
            _misplaced(report, entry.path)
            continue
        wanted = 0o555 if entry.name.endswith(".x") else 0o444
        if stat.S_IMODE(info.st_mode) != wanted:
            reason = f"mode {stat.S_IMODE(info.st_mode):04o} instead of {wanted:04o}"
            report.problems.append(Problem("mode", entry.name, entry.path, reason))
        if modes:
            _check_blob_inode(entry, info, report)
        yield entry.name, entry.path, info.st_size


def _check_blob_inode(entry: os.DirEntry[str], info: os.stat_result, report: Report) -> None:
    if info.st_mtime_ns != durable.EPOCH_NS:
        report.problems.append(
            Problem("mode", entry.name, entry.path, "its modification time is not the constant")
        )
    if info.st_nlink > 2:
        report.problems.append(
            Problem("mode", entry.name, entry.path, f"{info.st_nlink} links instead of 1 or 2")
        )


def _blobs(home: str, report: Report, known: Known, jobs: int) -> None:
    def check(shard: str) -> tuple[Report, Known]:
        part, found = Report(), Known()
        for name, path, size in _objects(shard, part, modes=True):
            part.blobs += 1
            part.bytes += size
            reason = content_problem(path, name.removesuffix(".x"))
            if reason:
                part.problems.append(Problem("damaged", f"blob {name}", path, reason))
                continue
            found.blobs[name] = size
            info = os.lstat(path)
            if info.st_nlink > 1:
                found.inodes[info.st_ino] = name
        return part, found

    for part, found in _spread(check, _shards(home, report), jobs):
        report.problems += part.problems
        report.blobs += part.blobs
        report.bytes += part.bytes
        known.blobs.update(found.blobs)
        known.inodes.update(found.inodes)


def _spread(
    check: Callable[[str], tuple[Report, Known]], shards: Sequence[str], jobs: int
) -> Iterable[tuple[Report, Known]]:
    if jobs <= 1 or len(shards) <= 1:
        yield from map(check, shards)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(check, shards)


def _trees(home: str, report: Report, known: Known) -> None:
    paths: dict[str, str] = {}
    for shard in _shards(home, report):
        for name, path, size in _objects(shard, report, modes=False):
            report.trees += 1
            report.bytes += size
            try:
                data = Path(path).read_bytes()
                reason = "" if tagged(DOMAIN, data).hex == name else "another digest"
                if not reason:
                    known.trees[name] = decode(data)
                    paths[name] = path
            except OSError as error:
                reason = f"unreadable: {error.strerror}"
            except ReprobuildError as error:
                reason = error.message
            if reason:
                report.problems.append(Problem("damaged", f"tree {name}", path, reason))
    for name, path in paths.items():
        for child, entry in known.trees[name].entries:
            shown = child.decode("utf-8", "backslashreplace")
            if isinstance(entry, Directory) and entry.digest.hex not in known.trees:
                _missing(report, f"tree {entry.digest.hex}", path, f"referred to as {shown}")
            elif isinstance(entry, File):
                key = entry.digest.hex + (".x" if entry.executable else "")
                have = known.blobs.get(key)
                if have != entry.size:
                    reason = f"referred to as {shown}"
                    if have is not None:
                        reason += f" with {entry.size} bytes, while it has {have}"
                    _missing(report, f"blob {key}", path, reason)


def _drvs(home: str, report: Report, known: Known) -> None:
    for shard in _shards(home, report):
        for name, path, size in _objects(shard, report, modes=False):
            report.drvs += 1
            report.bytes += size
            try:
                good = is_derivation(Digest(name), Path(path).read_bytes())
                reason = "" if good else "another digest"
            except OSError as error:
                reason = f"unreadable: {error.strerror}"
            if reason:
                report.problems.append(Problem("damaged", f"drv {name}", path, reason))
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
        for name, path, _ in _objects(shard, report, modes=False):
            try:
                reference = parse_reference(Path(path).read_bytes())
            except OSError:
                reference = None
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
