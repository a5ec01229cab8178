"""Hashing everything again, and naming all that is not as it should be.

Both a product (`reprobuild store verify`) and the oracle at the end of the store's tests. Looks
at files only: nothing it reports comes from a cache.
"""

from __future__ import annotations

import os

from reprobuild.adapters.store import seen
from reprobuild.adapters.store.layout import BESIDE, DIRECTORIES, DOCUMENTS, Layout
from reprobuild.adapters.store.shards import (
    Found,
    check_shard,
    is_empty,
    listing,
    objects,
    read,
    shards,
)
from reprobuild.adapters.store.verify_report import Known, Problem, Report
from reprobuild.core import node
from reprobuild.core.blake import tagged_hex
from reprobuild.core.node import DOMAIN

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from typing import Any

    from reprobuild.adapters.store.crew import Crew

_WORTH = 16 * 2**20
"""Bytes after which another process is worth its start, as when a tree is read (taking.py)."""


def verify(layout: Layout, *, jobs: int) -> Report:
    """The report on a store; never raises for what it finds.

    With `jobs` of 2 and more other processes take a share.
    """
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
            report.misplaced(entry.path)
    _content(root, report, known, jobs)
    # What there is none of is not to be imported for.
    if any(not is_empty(f"{root}/{name}") for name in DOCUMENTS):
        from reprobuild.adapters.store.verify_documents import check_documents

        check_documents(root, report, known)
    if not is_empty(f"{root}/materialised"):
        from reprobuild.adapters.store.verify_made import check_materialised

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


def _content(root: str, report: Report, known: Known, jobs: int) -> None:
    """Blobs and directory nodes: the nodes are looked at while others hash blobs."""
    found, trees = Found(), _Trees(report, known)
    crew: Crew | None = None
    nodes = shards(f"{root}/trees", report.say)
    blobs = shards(f"{root}/blobs", report.say)

    def done(shard: str, answer: Any) -> None:
        if answer is None:
            check_shard(shard, found)
        else:
            found.add(answer)

    try:
        for number, shard in enumerate(blobs):
            if number:
                each = found.weight // number
                if crew is None and jobs > 1 and each * (len(blobs) - number) > 2 * _WORTH:
                    from reprobuild.adapters.store.crew import Crew

                    crew = Crew("shard", lambda: (None, -1), done, worth=_WORTH)
                while crew is not None and nodes and not crew.has_time():
                    trees.shard(nodes.pop())
                if crew is not None and crew.offer(shard, shard, each):
                    continue
            check_shard(shard, found)
        for shard in nodes:
            trees.shard(shard)
        if crew is not None:
            crew.settle()
    finally:
        if crew is not None:
            crew.close()
    report.problems += [Problem(*problem) for problem in found.problems]
    report.blobs += found.count
    report.bytes += found.bytes
    known.blobs, known.inodes = found.blobs, found.inodes
    trees.references()


class _Trees:
    """Directory nodes: a shard at a time, and at the end whether all that they refer to is here."""

    def __init__(self, report: Report, known: Known) -> None:
        self._report = report
        self._known = known
        self._paths: dict[str, str] = {}
        self._files: set[tuple[str, int]] = set()
        """Names that blobs have to have, and sizes."""
        self._below: set[bytes] = set()

    def shard(self, shard: str) -> None:
        """Hashes and reads the nodes of a shard."""
        report = self._report
        for name, path, fd, info, why in objects(shard, report.say, modes=False):
            report.trees += 1
            report.bytes += info.st_size
            data, reason = read(fd, info.st_size, why)
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
                if kind == b"f":
                    self._files.add((value.hex(), size))
                elif kind == b"x":
                    self._files.add((value.hex() + ".x", size))
                elif kind == b"d":
                    self._below.add(value)

    def references(self) -> None:
        """Names what is missing, with all that refers to it."""
        blobs, trees = self._known.blobs, self._known.trees
        if self._files <= blobs.items() and all(value.hex() in trees for value in self._below):
            return
        for name, path in self._paths.items():
            for kind, child, value, size in node.rows(trees.bytes(name)):
                self._reference(path, kind, child, value.hex(), size)

    def _reference(self, path: str, kind: bytes, child: bytes, key: str, size: int) -> None:
        reason = f"referred to as {child.decode('utf-8', 'backslashreplace')}"
        if kind == b"d":
            if key not in self._known.trees:
                self._report.missing(f"tree {key}", path, reason)
        elif kind != b"l":
            key += ".x" if kind == b"x" else ""
            have = self._known.blobs.get(key)
            if have != size:
                if have is not None:
                    reason += f" with {size} bytes, while it has {have}"
                self._report.missing(f"blob {key}", path, reason)
