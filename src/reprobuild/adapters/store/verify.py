"""Hashing everything again, and naming all that is not as it should be.

Both a product (`reprobuild store verify`) and the oracle at the end of the store's tests. Looks
at files only: nothing it reports comes from a cache.
"""

from __future__ import annotations

import os

from reprobuild.adapters.store import seen
from reprobuild.adapters.store.layout import BESIDE, DIRECTORIES, DOCUMENTS, Layout
from reprobuild.adapters.store.shards import (
    MANY_LINKS,
    Found,
    check_shard,
    is_empty,
    listing,
    shards,
)
from reprobuild.adapters.store.verify_objects import Objects
from reprobuild.adapters.store.verify_report import Known, Problem, Report

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
    here = Objects(root, report, known)
    _content(root, report, known, here, jobs)
    # What there is none of is not to be imported for.
    if any(not is_empty(f"{root}/{name}") for name in DOCUMENTS):
        from reprobuild.adapters.store.verify_documents import check_documents

        check_documents(root, report, known, here)
    if not is_empty(f"{root}/materialised"):
        from reprobuild.adapters.store.verify_made import check_materialised

        check_materialised(f"{root}/materialised", report, known, here)
    here.references()  # of what was found late
    # What is here, but damaged, was named once; its referrers need not name it again.
    damaged = {problem.object for problem in report.problems if problem.kind == "damaged"}
    report.problems = [
        p
        for p in dict.fromkeys(report.problems)  # what is referred to is looked at again
        if (p.kind != "missing" or p.object not in damaged) and not _has_passed(p)
    ]
    report.problems.sort(key=lambda problem: (problem.path, problem.kind, problem.reason))
    return report, known


def _has_passed(problem: Problem) -> bool:
    """Whether a problem was only that others worked: what it is of has gone since, or a link."""
    try:
        info = os.lstat(_within(problem.path))
    except FileNotFoundError:
        # What is missing in a directory is named by the path that it should have.
        return problem.kind != "missing" or not problem.path.endswith(f"/{problem.object}")
    except OSError:
        return False
    return problem.reason.endswith(MANY_LINKS) and info.st_nlink <= 2


def _within(path: str) -> str:
    """The path, or the beginning of it that is no longer than the kernel takes."""
    return path if len(os.fsencode(path)) < 4000 else path[:1000].rpartition("/")[0]


def _content(root: str, report: Report, known: Known, here: Objects, jobs: int) -> None:
    """Blobs and directory nodes: the nodes are looked at while others hash blobs."""
    found = Found()
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
                    here.trees(nodes.pop())
                if crew is not None and crew.offer(shard, shard, each):
                    continue
            check_shard(shard, found)
        for shard in nodes:
            here.trees(shard)
        if crew is not None:
            crew.settle()
    finally:
        if crew is not None:
            crew.close()
    found.tell(report)
    known.blobs, known.inodes = found.blobs, found.inodes
    here.references()
