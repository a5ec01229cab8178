"""Places for builds: a starter with its user id and its control groups, used again and again."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from reprobuild.adapters.sandbox import seccomp
from reprobuild.adapters.sandbox.cgroup import Group, Hierarchy
from reprobuild.adapters.sandbox.identity import UidPool
from reprobuild.adapters.sandbox.process import process_limits
from reprobuild.adapters.sandbox.starter import NoStarterError, Starter
from reprobuild.errors import ReprobuildError

_OUTSIDE = 2
"""Processes of ours in a slot's groups: the starter and bubblewrap's monitor."""


@dataclass(slots=True)
class Slot:
    """One place: one build at a time."""

    starter: Starter
    user: int | None
    group: Group
    file_size: int
    holds: ExitStack

    def close(self) -> None:
        """Ends the starter, removes the groups, frees the user id."""
        self.starter.close()
        self.group.remove()
        self.holds.close()


@dataclass(slots=True)
class _Coming:
    """A starter that may not be ready yet, in no group so far."""

    starter: Starter
    user: int | None
    file_size: int
    holds: ExitStack

    def close(self) -> None:
        self.holds.close()


class Slots:
    """The places of one executor; made as they are needed, closed with it or at exit.

    `users` lends the user id of a build, None where builds run as we do; `processes` limits
    the processes of a build.
    """

    def __init__(
        self,
        users: UidPool | None,
        hierarchies: Sequence[Hierarchy],
        processes: int,
    ) -> None:
        self._users = users
        self._hierarchies = hierarchies
        self._processes = processes + _OUTSIDE
        self._idle: list[Slot] = []
        self._coming: list[_Coming] = []
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _close_all, (self._idle, self._coming), os.getpid())

    def close(self) -> None:
        """Closes all that are idle."""
        self._end()

    def expect(self, file_sizes: Sequence[int]) -> None:
        """Begins to make a place for each, so that it is there when it is taken: a starter takes a
        while to start, mostly on another core. Where it fails, `take` will say so."""
        for file_size in file_sizes:
            try:
                coming = self._begin(file_size)
            except (NoStarterError, ReprobuildError):
                return
            with self._lock:
                self._coming.append(coming)

    @contextmanager
    def take(self, file_size: int, memory: int) -> Iterator[Slot]:
        """A place for one build: no file above `file_size` bytes, at most `memory` bytes of memory.

        Raises NoStarterError where no starter can be had.
        """
        slot = self._find(file_size, memory) or self._make(file_size, memory)
        try:
            yield slot
        finally:
            if slot.starter.gone:
                slot.close()
            else:
                with self._lock:
                    self._idle.append(slot)

    def _find(self, file_size: int, memory: int) -> Slot | None:
        while True:
            with self._lock:
                slot = self._idle.pop() if self._idle else None
            if slot is None:
                return None
            # A hard limit cannot be raised again, so a starter is for one size.
            if slot.file_size != file_size:
                slot.close()
                continue
            if not slot.group.renew(memory):
                old, slot.group = slot.group, self._group(slot.starter, memory)
                old.remove()
            return slot

    def _group(self, starter: Starter, memory: int) -> Group:
        group = Group.make(self._hierarchies, memory, self._processes)
        group.add(starter.pid)
        return group

    def _make(self, file_size: int, memory: int) -> Slot:
        while expected := self._expected(file_size):
            with suppress(NoStarterError):  # something has killed it meanwhile
                return self._finish(expected, memory)
        return self._finish(self._begin(file_size), memory)

    def _finish(self, coming: _Coming, memory: int) -> Slot:
        with coming.holds as holds:
            coming.starter.await_ready()
            group = self._group(coming.starter, memory)
            return Slot(coming.starter, coming.user, group, coming.file_size, holds.pop_all())

    def _expected(self, file_size: int) -> _Coming | None:
        with self._lock:
            for index, coming in enumerate(self._coming):
                if coming.file_size == file_size:
                    return self._coming.pop(index)
        return None

    def _begin(self, file_size: int) -> _Coming:
        with ExitStack() as holds:
            user = holds.enter_context(self._users.acquire()) if self._users else None
            starter = Starter(user, process_limits(file_size), seccomp.program(), wait=False)
            holds.callback(starter.close)
            return _Coming(starter, user, file_size, holds.pop_all())


def _close_all(places: Sequence[list[Slot] | list[_Coming]], owner: int) -> None:
    for waiting in places:
        while waiting and os.getpid() == owner:  # a forked child has only copies
            waiting.pop().close()
