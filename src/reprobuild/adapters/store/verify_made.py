"""The part of `verify` that compares materialised trees with what they were made of."""

from __future__ import annotations

import os
import stat

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.blobs import content_problem
from reprobuild.adapters.store.info import listing
from reprobuild.adapters.store.verify_report import Known, Problem, Report
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, Entry, File, Symlink


class _Checker:
    def __init__(self, report: Report, known: Known) -> None:
        self._report = report
        self._known = known
        self._seen: dict[int, str] = {}

    def say(self, kind: str, path: str, reason: str) -> None:
        self._report.problems.append(Problem(kind, os.path.basename(path), path, reason))

    def tree(self, path: str, hex_digest: str) -> None:
        stack = [(path, hex_digest)]
        while stack:
            here, digest = stack.pop()
            tree = self._known.trees.get(digest)
            if tree is None:
                reason = "a directory was made of it"
                self._report.problems.append(Problem("missing", f"tree {digest}", here, reason))
                continue
            self._constant(here, os.lstat(here), 0o555)
            found = {os.fsencode(entry.name) for entry in listing(here)}
            wanted = dict(tree.entries)
            for name in sorted(found - set(wanted)):
                self.say("misplaced", f"{here}/{os.fsdecode(name)}", "not in the tree")
            for name, entry in wanted.items():
                place = f"{here}/{os.fsdecode(name)}"
                if name not in found:
                    self.say("missing", place, f"in the tree {digest}, but not here")
                elif self._leaf(place, entry) and isinstance(entry, Directory):
                    stack.append((place, entry.digest.hex))

    def _leaf(self, path: str, entry: Entry) -> bool:
        info = os.lstat(path)
        if isinstance(entry, Directory):
            if stat.S_ISDIR(info.st_mode):
                return True
        elif isinstance(entry, Symlink):
            if stat.S_ISLNK(info.st_mode) and os.readlink(os.fsencode(path)) == entry.target:
                return True
        elif stat.S_ISREG(info.st_mode):
            self.file(path, info, entry)
            return True
        self.say("damaged", path, "it is of another kind, or leads elsewhere")
        return False

    def file(self, path: str, info: os.stat_result, entry: File) -> None:
        self._constant(path, info, 0o555 if entry.executable else 0o444)
        first = self._seen.setdefault(info.st_ino, path)
        if first != path:
            self.say("mode", path, f"it is the same file as {first}")
        key = entry.digest.hex + (".x" if entry.executable else "")
        if self._known.inodes.get(info.st_ino) == key:
            return  # the very blob, which was hashed already
        self._report.bytes += info.st_size
        reason = content_problem(path, entry.digest.hex)
        if reason:
            self.say("damaged", path, reason)

    def _constant(self, path: str, info: os.stat_result, mode: int) -> None:
        if stat.S_IMODE(info.st_mode) != mode:
            self.say("mode", path, f"mode {stat.S_IMODE(info.st_mode):04o} instead of {mode:04o}")
        if info.st_mtime_ns != durable.EPOCH_NS:
            self.say("mode", path, "its modification time is not the constant")


def check_materialised(home: str, report: Report, known: Known) -> None:
    """Compares every materialised tree and blob; unfinished ones are collection's business."""
    checker = _Checker(report, known)
    for entry in listing(home):
        if entry.name.startswith("."):
            continue
        report.materialised += 1
        info = entry.stat(follow_symlinks=False)
        hex_digest, dot, suffix = entry.name.partition(".")
        if len(hex_digest) != 64 or suffix not in ("", "f", "x") or (dot and not suffix):
            checker.say("misplaced", entry.path, "not the store's")
        elif not suffix and stat.S_ISDIR(info.st_mode):
            checker.tree(entry.path, hex_digest)
        elif suffix and stat.S_ISREG(info.st_mode):
            checker.file(entry.path, info, File(Digest(hex_digest), info.st_size, suffix == "x"))
        else:
            checker.say("damaged", entry.path, "it is of another kind")
