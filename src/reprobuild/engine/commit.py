"""Recording builds, many with one trip to the disk.

To record a build durably takes a handful of synchronisations, one after the other, and each waits
for the disk. A build that has ended is therefore handed over and the next one begins; whatever has
been handed over while the last batch was on its way makes the next batch. Builds that take
milliseconds are moreover waited for, a moment (`GATHER`), so that a trip is for many of them: a
trip for each takes as long as they do. The lock on an action is held until its record stands, so no
other process makes it in between, and a run does not end before all it made is on record. A crash
loses at most what was on its way, and what it loses was quick to make.

What the builds of a batch were shown is looked at once more before they are recorded (`_look`): a
run may take hours, and somebody may change a directory that was looked at when it began. Of a large
directory such a look takes a while, so quick builds wait until `SHARE` times as long has passed.

Recipes are stored before the records that name them, and by the same thread: the first builds run
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from reprobuild.core.derivation import InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Catalog, ContentStore

MOST = 256
"""Builds that may be on their way at a time; the next one waits."""

MANY = 64
"""So many builds are not kept waiting for more."""

GATHER = 0.2
"""Seconds that a quick build may wait for others to share its trip to the disk."""

QUICK_MS = 1000
"""What took no longer than that is quick: losing it to a crash costs little."""


SHARE = 20
"""Looking at inputs may take a twentieth of the time, where builds are quick."""


@dataclass(frozen=True, slots=True)
class Made:
    """A build to record: `new` unless its record stands already. `held` is closed when it does,
    or cannot; `after` is called when it does; `shown` is what the build was shown of the store."""

    drv: Digest
    record: Record
    new: bool
    held: ExitStack
    after: Callable[[], None]
    shown: frozenset[InputContent] = frozenset()


class Committer:
    """Takes builds from many threads and records them in one of its own. A context: leaving it
    waits until all is recorded, and raises what went wrong. `first` is done before anything is
    recorded, from the beginning on."""

    def __init__(
        self, content: ContentStore, catalog: Catalog, first: Callable[[], None] = lambda: None
    ) -> None:
        self._content = content
        self._catalog = catalog
        self._first = first
        self._tried = threading.Event()
        self._ready = False
        self._waiting: list[Made] = []
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        """For who hands over."""
        self._some = threading.Condition(self._lock)
        """For who records. Told of the first build, of what ends the wait for more, and of nothing
        else: to be woken costs more than to take a build from a list."""
        self._hurry = False
        self._urgent = False
        """Whether a look at inputs is not to be waited for: something long, or the end."""
        self._closing = False
        self._rested = 0.0
        """When (monotonic seconds) looking has taken its share again."""
        self._over = False
        self._pool = ThreadPoolExecutor(1, "commit")
        self._work: Future[None] | None = None

    def __enter__(self) -> Committer:
        self._work = self._pool.submit(self._run)
        return self

    def ready(self) -> None:
        """Waits until what is to be done first is done: for who records something without `put`.
        Raises what it met with."""
        self._tried.wait()
        if not self._ready and self._work is not None:
            self._work.result()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._lock:
            self._closing = True
            self._some.notify_all()
        self._pool.shutdown()
        if self._work is not None and error is None:
            self._work.result()

    def hurry(self) -> None:
        """Says that no more is coming soon: what waits is not kept for others any longer."""
        with self._lock:
            self._hurry = self._urgent = bool(self._waiting)
            self._some.notify_all()

    def put(self, made: Made) -> None:
        """Hands a build over. Raises what an earlier one met with: then nothing more is taken."""
        try:
            with self._lock:
                assert self._work is not None
                self._room.wait_for(lambda: len(self._waiting) < MOST or self._over)
                if not self._over:
                    self._take(made)
                    return
            self._work.result()
        except BaseException:
            made.held.close()
            raise

    def _take(self, made: Made) -> None:
        self._waiting.append(made)
        urgent = made.record.duration_ms > QUICK_MS or len(self._waiting) >= MOST
        hurries = urgent or len(self._waiting) >= MANY
        if (
            len(self._waiting) == 1
            or (hurries and not self._hurry)
            or (urgent and not self._urgent)
        ):
            self._hurry = self._hurry or hurries
            self._urgent = self._urgent or urgent
            self._some.notify_all()

    def _run(self) -> None:
        try:
            try:
                self._first()
                self._ready = True
            finally:
                self._tried.set()
            while batch := self._next():
                try:
                    self._record(batch)
                finally:
                    _release(batch)
        finally:
            with self._lock:
                self._over = True
                self._room.notify_all()
            _release(self._waiting)

    def _next(self) -> list[Made]:
        """What has been handed over since the last time; nothing at the end."""
        with self._lock:
            self._some.wait_for(lambda: self._waiting or self._closing)
            self._some.wait_for(lambda: self._hurry or self._closing, GATHER)
            rest = self._rested - time.monotonic()
            if rest > 0:
                self._some.wait_for(lambda: self._urgent or self._closing, rest)
            batch, self._waiting = self._waiting, []
            self._hurry = self._urgent = False
            self._room.notify_all()
        return batch

    def _look(self, batch: list[Made]) -> None:
        begun = time.monotonic()
        shown = frozenset[InputContent]().union(*[made.shown for made in batch])
        if not shown:
            return
        require_unchanged(self._content, shown)
        now = time.monotonic()
        self._rested = now + SHARE * (now - begun)

    def _record(self, batch: list[Made]) -> None:
        self._look(batch)
        self._content.barrier()
        self._catalog.add_records([made.record for made in batch if made.new])
        for made in batch:
            self._catalog.choose(made.drv, made.record)
            made.after()


def require_unchanged(content: ContentStore, shown: Iterable[InputContent]) -> None:
    """Raises E-STORE-DAMAGED when something that builds were shown is not what it should be."""
    changed = content.changed(shown)
    if changed:
        names = ", ".join(sorted(found.digest.short for found in changed))
        raise ReprobuildError(
            "E-STORE-DAMAGED",
            f"somebody changed what builds were shown of the store ({names}) while they ran; "
            "nothing that came of it is on record",
            hint="run it again: what was changed is made again",
            changed=sorted(found.digest.hex for found in changed),
        )


def _release(batch: list[Made]) -> None:
    for made in batch:
        made.held.close()
