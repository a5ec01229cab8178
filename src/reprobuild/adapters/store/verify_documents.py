"""The part of `verify` that looks at documents: derivations, records, memos and roots."""

from __future__ import annotations

from reprobuild.adapters.store.layout import QUARANTINE
from reprobuild.adapters.store.names import root_name
from reprobuild.adapters.store.records import parse_memo
from reprobuild.adapters.store.roots import parse_keep
from reprobuild.adapters.store.shards import listing, objects, read, shards
from reprobuild.adapters.store.verify_objects import Objects
from reprobuild.adapters.store.verify_report import Known, Report
from reprobuild.errors import ReprobuildError


def check_documents(root: str, report: Report, known: Known, here: Objects) -> None:
    """Looks at all of them, and at what they refer to."""
    _drvs(f"{root}/drvs", report, here)
    _records(f"{root}/records", report, known.records, here)
    _records(f"{root}/{QUARANTINE}", report, known.aside, here)
    _chosen(f"{root}/chosen", report, here)
    _roots(f"{root}/roots", report, here)


def _drvs(home: str, report: Report, here: Objects) -> None:
    for shard in shards(home, report.say):
        here.drvs(shard)


def _records(home: str, report: Report, good: set[tuple[str, str]], here: Objects) -> None:
    for action in listing(home):
        if len(action.name) != 64 or not action.is_dir(follow_symlinks=False):
            report.misplaced(action.path)
        else:
            here.records(action.path, good)


def _chosen(home: str, report: Report, here: Objects) -> None:
    for shard in shards(home, report.say):
        for name, path, fd, info, why in objects(shard, report.say, modes=False):
            data, reason = read(fd, info.st_size, why)
            reference = None if reason else parse_memo(data, name)
            other = data.removesuffix(b"\n").rpartition(b"/")[2].decode("ascii", "replace")
            if reference is None and parse_memo(data, other) is not None:
                report.say("damaged", f"memo {name}", path, f"it is that of derivation {other}")
            # A memo that a power failure emptied is as good as none; one that dangles is not.
            if reference is not None and not here.has_record(reference):
                report.missing(f"record {reference[1]}", path, f"chosen for {name}")


def _roots(home: str, report: Report, here: Objects) -> None:
    for entry in listing(home):
        name = root_name(entry.name)
        data = report.document(f"root {name}", entry.path)
        if data is None:
            continue
        report.roots += 1
        try:
            keep = parse_keep(name, data)
        except ReprobuildError as error:
            report.say("damaged", f"root {name}", entry.path, error.message)
            continue
        for tree in keep.trees:
            if not here.has_tree(tree):
                report.missing(f"tree {tree}", entry.path, f"kept by root {name}")
        for drv in keep.drvs:
            if not here.has_drv(drv):
                report.missing(f"drv {drv}", entry.path, f"kept by root {name}")
        for reference in keep.records:
            if not here.has_record(reference):
                report.missing(f"record {reference[1]}", entry.path, f"kept by root {name}")
