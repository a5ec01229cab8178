"""Two results for one action: both are kept, and a person says which one is set aside.

A record that was set aside lies at quarantine/<action>/<record>: collection keeps it with its log
and trees, verification looks at it, and no look-up finds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reprobuild.adapters.store import durable, locks
from reprobuild.adapters.store.dependants import forget_dependants
from reprobuild.adapters.store.layout import QUARANTINE, Layout
from reprobuild.adapters.store.records import parse_record, read
from reprobuild.adapters.store.roots import MEMO_ROOT, Keep, Roots, parse_keep, with_keep
from reprobuild.adapters.store.shards import listing
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class Result:
    """One record of a disagreement; `name` is its digest in hex."""

    name: str
    record: Record
    set_aside: bool


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An action with different results; settled when all but equal ones are set aside."""

    action: str
    results: tuple[Result, ...]

    @property
    def settled(self) -> bool:
        """Whether look-ups find one result only."""
        return len({_outputs(r.record) for r in self.results if not r.set_aside}) <= 1


class Quarantine:
    """The disagreements of one store."""

    def __init__(self, layout: Layout, roots: Roots) -> None:
        self._layout = layout
        self._roots = roots
        self._home = layout.directory(QUARANTINE)

    def disagreements(self) -> list[Disagreement]:
        """All actions with different results, or with one that was set aside, by digest.

        Raises E-STORE-DAMAGED for a record that cannot be read. What is no record is passed over:
        verification names it.
        """
        found: list[Disagreement] = []
        aside = _directories(str(self._home))
        here = _directories(str(self._layout.directory("records")))
        for action in sorted(aside | here):
            if action not in aside and len(listing(self._layout.records(action))) < 2:
                continue
            results = tuple(self._results(action))
            different = len({_outputs(r.record) for r in results}) > 1
            if different or any(r.set_aside for r in results):
                found.append(Disagreement(action, results))
        return found

    def _results(self, action: str) -> Iterator[Result]:
        places = ((self._layout.records(action), False), (str(self._home / action), True))
        for directory, set_aside in places:
            if os.path.islink(directory):
                continue
            for entry in listing(directory):
                if not entry.is_file(follow_symlinks=False):
                    continue
                data = read(entry.path, "record", entry.name)
                if data is not None:
                    record = parse_record(data, action, entry.name, entry.path)
                    yield Result(entry.name, record, set_aside)

    # -- decisions -----------------------------------------------------------------------------

    def set_aside(self, name: str) -> Result:
        """Takes a record out of use; `name` is its digest, or the beginning of it.

        Raises E-USAGE for a name that fits none or several, E-STORE-BUSY while the store is used.
        """
        with self._alone():
            action, found = self._find(name, set_aside=False)
            reference = (action, found.name)
            # What refers to it goes first: a cut leaves it in use, never named and not there.
            self._cut_roots(reference)
            self._forget(action, found)
            durable.ensure_directory(self._home)
            durable.sync_directory(self._layout.root)
            durable.ensure_directory(self._home / action)
            durable.sync_directory(self._home)
            self._move(Path(self._layout.records(action)), self._home / action, found.name)
            return found

    def restore(self, name: str) -> Result:
        """Puts a record back into use."""
        with self._alone():
            action, found = self._find(name, set_aside=True)
            durable.ensure_directory(self._layout.records(action))
            self._forget(action, found)
            self._move(self._home / action, Path(self._layout.records(action)), found.name)
            return found

    def forget(self, name: str) -> Result:
        """Removes a record that was set aside, for good; collection then takes what it kept."""
        with self._alone():
            action, found = self._find(name, set_aside=True)
            durable.unlink(self._home / action / found.name)
            durable.sync_directory(self._home / action)
            self._tidy(self._home / action)
            return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (
            locks.sole(self._layout.directory("locks") / "store", wait=False),
            durable.writing(self._layout.root, "the quarantine"),
        ):
            yield

    def _find(self, name: str, *, set_aside: bool) -> tuple[str, Result]:
        name = name.rpartition(":")[2].lower()
        fits = [
            (found.action, result)
            for found in self.disagreements()
            for result in found.results
            if result.set_aside == set_aside and result.name.startswith(name)
        ]
        if len(fits) != 1 or len(name) < 6:
            where = "set aside" if set_aside else "of a disagreement"
            raise ReprobuildError(
                "E-USAGE",
                f"{name!r} names {len(fits)} records {where}, not one",
                hint="`reprobuild store quarantine` lists them; six digits at least",
                got=name,
            )
        return fits[0]

    def _move(self, source: Path, target: Path, name: str) -> None:
        durable.rename(source / name, target / name)
        durable.sync_directory(target)
        durable.sync_directory(source)
        self._tidy(source)

    @staticmethod
    def _tidy(directory: Path) -> None:
        if not os.listdir(directory):
            durable.rmdir(directory)

    def _cut_roots(self, reference: tuple[str, str]) -> None:
        for root, document in self._roots.documents():
            keep = parse_keep(root, document)
            if reference not in keep.records:
                continue
            if root.endswith(MEMO_ROOT):
                self._roots.remove(root)
                continue
            left = Keep(keep.trees, keep.drvs, tuple(r for r in keep.records if r != reference))
            self._roots.write(root, with_keep(document, left))

    def _forget(self, action: str, found: Result) -> None:
        """No short cut leads past the decision."""
        self._roots.forget_answers()
        forget_dependants(self._layout, {action}, {found.record.drv.hex})


def _directories(home: str) -> set[str]:
    return {entry.name for entry in listing(home) if entry.is_dir(follow_symlinks=False)}


def _outputs(record: Record) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, tree.hex) for name, tree in record.outputs.items()))
