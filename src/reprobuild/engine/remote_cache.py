"""Results that others have made, or that are left for others: by recipe and by action.

A cache is asked twice: before anything is planned, from the targets down by drv digest, so that a
release that somebody made whole costs one question; and then by action digest, before a build, so
that what changed but came out the same is found, too. What it says counts by its signature: by a
key that is trusted here, or by one's own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from reprobuild.core.bundle.signing import Signer, Trust
from reprobuild.core.derivation import Derivation, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph, documents
from reprobuild.core.record import Record
from reprobuild.core.remote.entry import Entry, Found
from reprobuild.engine.plan import is_made, usable
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Catalog, ContentStore, Reporter

_OURS = frozenset({"E-INTERRUPTED", "E-STORE-WRITE", "E-DISK-SPACE", "E-STORE-DAMAGED"})
"""Failures that are not the cache's."""


class SharedCache(Protocol):
    """What realizing asks and tells, action by action. Never fails for want of a cache."""

    def find(self, derivation: Derivation, action: Digest, wish: Isolation) -> Record | None:
        """A record that counts here, its trees in the store (not yet durable); None without."""
        ...

    def offer(self, record: Record) -> None:
        """Leaves a record and its trees for others, where that is wished."""
        ...


class EntryStore(Protocol):
    """A far store of signed entries and trees. Nothing it says is believed unverified."""

    @property
    def name(self) -> str:
        """For people; holds no credentials."""
        ...

    def entry(self, key: Digest) -> Found | None:
        """The entry under a recipe's or an action's digest; raises E-REMOTE…, E-BUNDLE."""
        ...

    def take(self, found: Found) -> None:
        """Brings the trees of an entry's record into the store.

        Each is named by what it is; what is not what the record says raises E-REMOTE-LIED.
        """
        ...

    def put(self, keys: Iterable[Digest], entry: Entry) -> None:
        """Stores trees first, then the entry under each key; raises E-REMOTE…."""
        ...


class CacheStore(ContentStore, Catalog, Protocol):
    """Content and what is known of it."""


@dataclass(slots=True)
class EntryCache:
    """A far store of entries, with the trust of one's own (`SharedCache`).

    With `signer` what is made here is left there, signed. A store that fails is let be for the
    rest of the run: a build never fails for want of a cache.
    """

    far: EntryStore
    store: CacheStore
    trust: Trust
    reporter: Reporter
    signer: Signer | None = None
    taken: int = 0
    given: int = 0
    notes: list[str] = field(default_factory=list)
    _broken: bool = False
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def prefetch(self, graph: Graph, targets: Iterable[Digest], wish: Isolation) -> None:
        """From the targets down: what is not on record is asked for; below what was got, nothing
        is. What nobody has is left to be built."""
        stack, seen = list(targets), set[Digest]()
        while stack and not self._broken:
            drv = stack.pop()
            if drv in seen:
                continue
            seen.add(drv)
            node = graph.nodes[drv]
            record = self.store.realized(drv)
            if record is not None and usable(self.store, record, wish):
                continue
            if is_made(node):
                record = self._ask(node, drv, wish)
                if record is not None:
                    self.store.add_derivations(documents(graph, [drv]))
                    self.store.barrier()
                    self.store.add_record(record)
                    self.store.choose(drv, record)
                    continue
            stack.extend(entry.drv for entry in node.inputs)

    def find(self, derivation: Derivation, action: Digest, wish: Isolation) -> Record | None:
        """By action digest."""
        return self._ask(derivation, action, wish)

    def _ask(self, derivation: Derivation, key: Digest, wish: Isolation) -> Record | None:
        if self._broken:
            return None
        try:
            found = self.far.entry(key)
            if found is None:
                return None
            record = found.entry.record
            if not self._counts(derivation, key, found, wish):
                return None
            if not all(self.store.contains(tree) for tree in record.outputs.values()):
                self.far.take(found)
        except ReprobuildError as error:
            if error.code in _OURS:
                raise
            self._fail(error)
            return None
        with self._mutex:
            self.taken += 1
        self.reporter.emit(
            "substituted", name=derivation.name, drv=str(derivation.digest), cache=self.far.name
        )
        return record

    def _counts(self, derivation: Derivation, key: Digest, found: Found, wish: Isolation) -> bool:
        """Whether an entry may stand for a build here."""
        record, name = found.entry.record, derivation.name
        if key not in (record.drv, record.action) or set(record.outputs) != set(derivation.outputs):
            raise ReprobuildError("E-BUNDLE", f"what it says of {name} is about something else")
        if not found.entry.trusted(self.trust):
            self._note(f"{self.far.name} has {name}, but no key that is trusted here signed it")
            return False
        fixed = derivation.fixed
        if fixed is not None and fixed.tree is not None and record.outputs["out"] != fixed.tree:
            raise ReprobuildError("E-BUNDLE", f"it has another tree for {name}")
        return record.isolation.satisfies(wish)

    def offer(self, record: Record) -> None:
        """Leaves what was made here, where there is a key to sign it with."""
        if self.signer is None or self._broken:
            return
        try:
            # logs stay at home: who takes the entry has none of that name
            entry = Entry(replace(record, log="")).signed(self.signer)
            self.far.put((record.drv, record.action), entry)
        except ReprobuildError as error:
            if error.code in _OURS:
                raise
            self._fail(error)
            return
        with self._mutex:
            self.given += 1

    def _fail(self, error: ReprobuildError) -> None:
        self._broken = True
        self._note(f"{self.far.name} is not asked any more: {error.message}")

    def _note(self, text: str) -> None:
        with self._mutex:
            if text in self.notes:
                return
            self.notes.append(text)
        self.reporter.emit("note", text=text)

    def document(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "from": {self.far.name: self.taken} if self.taken else {},
            "given": self.given,
            "notes": list(self.notes),
            "taken": self.taken,
        }
