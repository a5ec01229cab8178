"""Objects that `verify` looks at: all of a shard as it is listed, or one that something refers to.

Others write while verification looks. What they name after a directory was listed is referred to
by what is listed later, so what is not known is looked for on the disk before it counts as missing:
whatever a named object refers to was named first. That one then is looked at as closely as all.
"""

from __future__ import annotations

import os

from reprobuild.adapters.store.shards import Found, closely, listing, objects, read
from reprobuild.core import node
from reprobuild.core.blake import tagged_hex
from reprobuild.core.node import DOMAIN

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from reprobuild.adapters.store.verify_report import Known, Report


class Objects:
    """What is here of a store at `root`; all that is found is said to `report` and `known`."""

    def __init__(self, root: str, report: Report, known: Known) -> None:
        self._root = root
        self._report = report
        self._known = known
        self._pending: list[str] = []
        """Trees whose references were not looked at so far."""
        self._files: set[tuple[str, int]] = set()
        """Names that blobs have to have, and sizes, for those trees."""
        self._below: set[bytes] = set()
        self._looked: set[str] = set()
        """Objects that were not listed and not found, and those that are damaged."""
        self._heard = 0
        """Problems of the report that `_looked` knows of."""

    # -- what is listed ------------------------------------------------------------------------

    def trees(self, shard: str, names: list[str] | None = None) -> None:
        """Hashes and reads the nodes of a shard; `names`: these alone."""
        report = self._report
        for name, path, fd, info, why in objects(shard, report.say, modes=False, names=names):
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
            self._pending.append(name)
            for kind, _, value, size in rows:
                if kind == b"f":
                    self._files.add((value.hex(), size))
                elif kind == b"x":
                    self._files.add((value.hex() + ".x", size))
                elif kind == b"d":
                    self._below.add(value)

    def drvs(self, shard: str, names: list[str] | None = None) -> None:
        """Reads the derivations of a shard; `names`: these alone."""
        from reprobuild.adapters.store.records import is_derivation
        from reprobuild.core.digest import Digest

        report = self._report
        for name, path, fd, info, why in objects(shard, report.say, modes=False, names=names):
            report.drvs += 1
            report.bytes += info.st_size
            data, reason = read(fd, info.st_size, why)
            if not reason and not is_derivation(Digest(name), data):
                reason = "another digest"
            if reason:
                report.say("damaged", f"drv {name}", path, reason)
            else:
                self._known.drvs.add(name)

    def records(
        self, directory: str, good: set[tuple[str, str]], names: list[str] | None = None
    ) -> None:
        """Reads the records of an action; `names`: these alone. Sound ones are added to `good`."""
        for name in [entry.name for entry in listing(directory)] if names is None else names:
            self._record(f"{directory}/{name}", os.path.basename(directory), name, good)

    def _record(self, path: str, action: str, name: str, good: set[tuple[str, str]]) -> None:

        from reprobuild.adapters.store.records import parse_record
        from reprobuild.errors import ReprobuildError

        report = self._report
        data = report.document(f"record {name}", path)
        if data is None:
            return
        report.records += 1
        try:
            record = parse_record(data, action, name, path)
        except ReprobuildError as error:
            reason = str(error.facts.get("reason", error.message))
            report.say("damaged", f"record {name}", path, reason)
            return
        report.bytes += len(data)
        good.add((action, name))
        for output, tree in record.outputs.items():
            if not self.has_tree(tree.hex):
                report.missing(f"tree {tree.hex}", path, f"output {output}")

    # -- what is referred to -------------------------------------------------------------------

    def references(self) -> None:
        """Names what is missing of all that the trees refer to, which were looked at since."""
        blobs, trees = self._known.blobs, self._known.trees
        if self._files <= blobs.items() and all(value.hex() in trees for value in self._below):
            self._pending.clear()
        while self._pending:  # what is found late has references, too
            name = self._pending.pop()
            path = f"{self._root}/trees/{name[:2]}/{name}"
            for kind, child, value, size in node.rows(trees.bytes(name)):
                if kind != b"l":
                    self._reference(path, kind, child, value.hex(), size)
        self._files.clear()
        self._below.clear()

    def _reference(self, path: str, kind: bytes, child: bytes, key: str, size: int) -> None:
        reason = f"referred to as {child.decode('utf-8', 'backslashreplace')}"
        if kind == b"d":
            if not self.has_tree(key):
                self._report.missing(f"tree {key}", path, reason)
            return
        key += ".x" if kind == b"x" else ""
        have = self._blob_size(key)
        if have != size:
            if have is not None:
                reason += f" with {size} bytes, while it has {have}"
            self._report.missing(f"blob {key}", path, reason)

    def _blob_size(self, key: str) -> int | None:
        known, path = self._known, f"{self._root}/blobs/{key[:2]}/{key}"
        if key not in known.blobs and self._is_late(f"blob {key}", path):
            found = Found()
            closely(os.path.dirname(path), [key], found)
            found.tell(self._report)
            known.blobs.update(found.blobs)
            known.inodes.update(found.inodes)
        return known.blobs.get(key)

    def has_tree(self, name: str) -> bool:
        """Whether a sound tree is here."""
        path = f"{self._root}/trees/{name[:2]}/{name}"
        if name not in self._known.trees and self._is_late(f"tree {name}", path):
            self.trees(os.path.dirname(path), [name])
        return name in self._known.trees

    def has_drv(self, name: str) -> bool:
        """Whether a sound derivation is here."""
        path = f"{self._root}/drvs/{name[:2]}/{name}"
        if name not in self._known.drvs and self._is_late(f"drv {name}", path):
            self.drvs(os.path.dirname(path), [name])
        return name in self._known.drvs

    def has_record(self, reference: tuple[str, str]) -> bool:
        """Whether a sound record is here, in use."""
        action, name = reference
        path = f"{self._root}/records/{action}/{name}"
        known = self._known.records
        if reference not in known and self._is_late(f"record {name}", path):
            self.records(os.path.dirname(path), known, [name])
        return reference in known

    def _is_late(self, thing: str, path: str) -> bool:
        """Whether an object that no listing showed is here by now, and was not looked at so."""
        problems = self._report.problems
        for problem in problems[self._heard :]:
            if problem.kind == "damaged":
                self._looked.add(problem.object)
        self._heard = len(problems)
        if thing in self._looked or not os.path.lexists(path):
            return False
        self._looked.add(thing)
        return True
