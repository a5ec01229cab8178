"""The part of `verify` that compares materialised trees with what they were made of."""

from __future__ import annotations

import os
import stat

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.dirstack import DIRECTORY, DirStack
from reprobuild.adapters.store.hashing import content_problem
from reprobuild.adapters.store.shards import listing
from reprobuild.adapters.store.verify_objects import Objects
from reprobuild.adapters.store.verify_report import Known, Problem, Report
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree

_TRIES = 3
"""How often it is looked at what others make again and again."""


class _Checker:
    def __init__(self, report: Report, known: Known, here: Objects) -> None:
        self._report = report
        self._known = known
        self._here = here
        self._seen: dict[int, str] = {}

    def look(self, path: str, name: str) -> None:
        """Looks at all that has one name.

        Who finds it damaged puts it away and makes another: what was found of one that has the
        name no more is nothing.
        """
        problems = self._report.problems
        for _ in range(_TRIES):
            begun = len(problems)
            try:
                before = os.lstat(path)
            except FileNotFoundError:
                return
            try:
                self._entry(path, name, before)
            except OSError as error:
                self.say("damaged", path, f"unreadable: {error.strerror}")
            if len(problems) == begun or _is_still(path, before):
                return
            del problems[begun:]
            self._seen = {i: p for i, p in self._seen.items() if not f"{p}/".startswith(f"{path}/")}

    def _entry(self, path: str, name: str, info: os.stat_result) -> None:
        hex_digest, dot, suffix = name.partition(".")
        if len(hex_digest) != 64 or suffix not in ("", "f", "x") or (dot and not suffix):
            self.say("misplaced", path, "not the store's")
        elif not suffix and stat.S_ISDIR(info.st_mode):
            self.tree(path, hex_digest)
        elif suffix and stat.S_ISREG(info.st_mode):
            self.file(path, info, File(Digest(hex_digest), info.st_size, suffix == "x"))
        else:
            self.say("damaged", path, "it is of another kind")

    def say(self, kind: str, path: str, reason: str) -> None:
        self._report.problems.append(Problem(kind, os.path.basename(path), path, reason))

    def tree(self, path: str, hex_digest: str) -> None:
        """Walks by descriptors: a tree may be deeper than any path is long."""
        known = self._known.trees.get(hex_digest) if self._here.has_tree(hex_digest) else None
        if known is None:
            reason = "a directory was made of it"
            self._report.problems.append(Problem("missing", f"tree {hex_digest}", path, reason))
            return
        with DirStack(os.open(path, DIRECTORY)) as stack:
            self._constant(path, os.fstat(stack.top), 0o555)
            frames = [(path, self._entries(path, stack.top, known, hex_digest))]
            while frames:
                here, below = frames[-1]
                if not below:
                    frames.pop()
                    if frames:
                        stack.pop()
                    continue
                name, digest = below.pop()
                place = f"{here}/{os.fsdecode(name)}"
                tree = self._known.trees.get(digest) if self._here.has_tree(digest) else None
                if tree is None:
                    reason = "a directory was made of it"
                    self._report.problems.append(
                        Problem("missing", f"tree {digest}", place, reason)
                    )
                    continue
                stack.push(os.open(name, DIRECTORY, dir_fd=stack.top))
                self._constant(place, os.fstat(stack.top), 0o555)
                frames.append((place, self._entries(place, stack.top, tree, digest)))

    def _entries(self, here: str, fd: int, tree: Tree, digest: str) -> list[tuple[bytes, str]]:
        """Looks at what lies in one directory; the directories that are to be gone into."""
        found = {os.fsencode(name) for name in os.listdir(fd)}
        wanted = dict(tree.entries)
        for name in sorted(found - set(wanted)):
            self.say("misplaced", f"{here}/{os.fsdecode(name)}", "not in the tree")
        below: list[tuple[bytes, str]] = []
        for name, entry in wanted.items():
            place = f"{here}/{os.fsdecode(name)}"
            if name not in found:
                self.say("missing", place, f"in the tree {digest}, but not here")
            elif self._leaf(place, name, fd, entry) and isinstance(entry, Directory):
                below.append((name, entry.digest.hex))
        return below[::-1]

    def _leaf(self, path: str, name: bytes, fd: int, entry: Entry) -> bool:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if isinstance(entry, Directory):
            if stat.S_ISDIR(info.st_mode):
                return True
        elif isinstance(entry, Symlink):
            if stat.S_ISLNK(info.st_mode) and os.readlink(name, dir_fd=fd) == entry.target:
                return True
        elif stat.S_ISREG(info.st_mode):
            self.file(path, info, entry, opened=f"/proc/self/fd/{fd}/{os.fsdecode(name)}")
            return True
        self.say("damaged", path, "it is of another kind, or leads elsewhere")
        return False

    def file(self, path: str, info: os.stat_result, entry: File, opened: str = "") -> None:
        """Looks at a file; `opened` is a way to it where `path` may be too long."""
        self._constant(path, info, 0o555 if entry.executable else 0o444)
        first = self._seen.setdefault(info.st_ino, path)
        if first != path and not _is_still(first, info):  # it was put away
            first = self._seen[info.st_ino] = path
        if first != path:
            self.say("mode", path, f"it is the same file as {first}")
        key = entry.digest.hex + (".x" if entry.executable else "")
        if self._known.inodes.get(info.st_ino) == key:
            return  # the very blob, which was hashed already
        self._report.bytes += info.st_size
        reason = content_problem(opened or path, entry.digest.hex)
        if reason:
            self.say("damaged", path, reason)

    def _constant(self, path: str, info: os.stat_result, mode: int) -> None:
        if stat.S_IMODE(info.st_mode) != mode:
            self.say("mode", path, f"mode {stat.S_IMODE(info.st_mode):04o} instead of {mode:04o}")
        if info.st_mtime_ns != durable.EPOCH_NS:
            self.say("mode", path, "its modification time is not the constant")


def _is_still(path: str, info: os.stat_result) -> bool:
    """Whether a path leads to what it led to; one that cannot be followed is taken to."""
    try:
        return os.path.samestat(os.lstat(path), info)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def check_materialised(home: str, report: Report, known: Known, here: Objects) -> None:
    """Compares every materialised tree and blob; unfinished ones are collection's business."""
    checker = _Checker(report, known, here)
    for entry in listing(home):
        if not entry.name.startswith("."):
            report.materialised += 1
            checker.look(entry.path, entry.name)
