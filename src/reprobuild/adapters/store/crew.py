"""Processes that share a lot of small work with this one (process.py), and who has what."""

from __future__ import annotations

from reprobuild.adapters.store.process import GoneError, Process, spare_cores

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_OUT = 2
"""Pieces that a process has at once: one in work, one to follow."""
_MOST = 7


class Crew:
    """As many processes as there are cores to spare and work to keep them busy; `close` ends them.

    `work` is their kind (served.py), `setup` makes what they need to know and the lock that they
    hold, or -1 (it may raise OSError).
    `done` is called in the caller's thread with each piece and its answer; None means that it was
    not done, and that `done` has to do it. `worth` is how much of work makes one more worth its
    start; who uses a crew waits for that much before the first.
    """

    def __init__(
        self,
        work: str,
        setup: Callable[[], tuple[Any, int]],
        done: Callable[[Any, Any], None],
        *,
        worth: int,
        directory: int = -1,
    ) -> None:
        self._work, self._setup, self._done = work, setup, done
        self._worth, self._directory = worth, directory
        self._left = min(spare_cores(), _MOST)
        self._given = 0
        self._members: list[tuple[Process, list[Any]]] = []

    def has_time(self) -> bool:
        """Whether somebody would take a piece now."""
        return self._free() is not None

    def offer(self, piece: Any, request: Any, weight: int) -> bool:
        """Whether somebody took the piece: sent as `request`, and `weight` times small work."""
        member = self._free()
        if member is None:
            return False
        process, out = member
        out.append(piece)
        self._given += weight
        try:
            process.ask(request)
        except GoneError:
            self._lost(process, out)
        return True

    def _free(self) -> tuple[Process, list[Any]] | None:
        if self._left and self._given >= self._worth * len(self._members):
            self._start()
        for process, out in list(self._members):
            try:
                if len(out) >= _OUT:
                    self._collect(process, out, wait=False)
            except GoneError:
                self._lost(process, out)
            else:
                if len(out) < _OUT:
                    return process, out
        return None

    def settle(self) -> None:
        """Returns when everything is done."""
        for process, out in list(self._members):
            try:
                while out:
                    self._collect(process, out, wait=True)
            except GoneError:
                self._lost(process, out)

    def _start(self) -> None:
        self._left -= 1
        try:
            told, lock = self._setup()
            process = Process(self._work, told, self._directory, lock)
        except (OSError, GoneError):
            self._left = 0
        else:
            self._members.append((process, []))

    def _collect(self, process: Process, out: list[Any], *, wait: bool) -> None:
        for answer in process.answers(wait=wait):
            self._done(out.pop(0), answer)

    def _lost(self, process: Process, out: list[Any]) -> None:
        self._members = [member for member in self._members if member[0] is not process]
        self._left = 0  # what ended one may end the next
        process.close()
        while out:
            self._done(out.pop(0), None)

    def close(self) -> None:
        """Ends the processes, whatever they are at."""
        for process, _ in self._members:
            process.close()
        self._members.clear()
