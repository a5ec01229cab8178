"""The part of `verify` that looks at documents: derivations, records, memos and roots."""

from __future__ import annotations

from pathlib import Path

from reprobuild.adapters.store.layout import QUARANTINE
from reprobuild.adapters.store.names import root_name
from reprobuild.adapters.store.records import is_derivation, parse_record, parse_reference
from reprobuild.adapters.store.roots import parse_keep
from reprobuild.adapters.store.shards import listing, objects, read, shards
from reprobuild.adapters.store.verify_report import Known, Problem, Report
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError


def check_documents(root: str, report: Report, known: Known) -> None:
    """Looks at all of them, and at what they refer to; known.trees is complete."""
    _drvs(f"{root}/drvs", report, known)
    _records(f"{root}/records", report, known, known.records)
    _records(f"{root}/{QUARANTINE}", report, known, known.aside)
    _chosen(f"{root}/chosen", report, known)
    _roots(f"{root}/roots", report, known)


def _drvs(home: str, report: Report, known: Known) -> None:
    for shard in shards(home, report.say):
        for name, path, fd, info, why in objects(shard, report.say, modes=False):
            report.drvs += 1
            report.bytes += info.st_size
            data, reason = read(fd, info.st_size, why)
            if not reason and not is_derivation(Digest(name), data):
                reason = "another digest"
            if reason:
                report.say("damaged", f"drv {name}", path, reason)
            else:
                known.drvs.add(name)


def _records(home: str, report: Report, known: Known, good: set[tuple[str, str]]) -> None:
    for action in listing(home):
        if len(action.name) != 64 or not action.is_dir(follow_symlinks=False):
            report.misplaced(action.path)
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
                    report.missing(f"tree {tree.hex}", entry.path, f"output {output}")


def _chosen(home: str, report: Report, known: Known) -> None:
    for shard in shards(home, report.say):
        for name, path, fd, info, why in objects(shard, report.say, modes=False):
            data, reason = read(fd, info.st_size, why)
            reference = None if reason else parse_reference(data)
            # A memo that a power failure emptied is as good as none; one that dangles is not.
            if reference is not None and reference not in known.records:
                report.missing(f"record {reference[1]}", path, f"chosen for {name}")


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
                report.missing(f"tree {tree}", entry.path, f"kept by root {name}")
        for drv in keep.drvs:
            if drv not in known.drvs:
                report.missing(f"drv {drv}", entry.path, f"kept by root {name}")
        for action, record in keep.records:
            if (action, record) not in known.records:
                report.missing(f"record {record}", entry.path, f"kept by root {name}")
