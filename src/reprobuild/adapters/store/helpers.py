"""Threads that take work off a walk's hands, and give the results back in the walk's own thread."""

from __future__ import annotations

import os
import threading
from _queue import Empty, SimpleQueue  # queue imports what takes as long as all of this

from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Task(Protocol):
        """A piece of work; exactly one of `run` and `drop` is called, `merge` after `run`."""

        def run(self) -> None:
            """Does it, in any thread; may raise."""

        def drop(self) -> None:
            """Frees what it holds."""

        def merge(self) -> None:
            """Puts the result where it belongs, in the thread that handed it over."""


_MOST = 32
_MOST_WAITING = 64


class Threads:
    """One thread for each core but the caller's; started when there is work, ended by `close`.

    None where the caller is to be left `alone`: then everything is done in its own.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._most = 0 if alone else min(len(os.sched_getaffinity(0)), _MOST) - 1
        self._threads: list[threading.Thread] = []
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Task, Exception | None]] = SimpleQueue()
        self._out = 0

    def hand_over(self, task: Task) -> None:
        """Has the task done: sooner or later, or at once where there is one core.

        It holds no more than a few dozen, and may take up an earlier one: raises what that raised.
        """
        self._out += 1
        self._tasks.put(task)
        if len(self._threads) < min(self._most, self._out):
            thread = threading.Thread(target=self._work, name="store-helper", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more are allowed: then these must do
                self._most = len(self._threads)
            else:
                self._threads.append(thread)
        while self._out > (_MOST_WAITING if self._threads else 0):
            self._settle_one()

    def settle(self) -> None:
        """Returns when everything that was handed over is done, and merged; raises what it did."""
        while self._out:
            self._settle_one()

    def _settle_one(self) -> None:
        try:
            task = self._tasks.get_nowait()
        except Empty:
            done, error = self._done.get()
            self._out -= 1
            if error is not None:
                raise error from None
            done.merge()
            return
        assert task is not None
        self._out -= 1
        task.run()
        task.merge()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            outcome: Exception | None = RuntimeError("a thread of the store's failed")
            try:
                task.run()
                outcome = None
            except (ReprobuildError, OSError) as error:
                outcome = error
            finally:  # of a bug, Python itself says where; nobody may wait for ever
                self._done.put((task, outcome))

    def close(self) -> None:
        """Drops what is not begun and ends the threads."""
        while True:
            try:
                task = self._tasks.get_nowait()
            except Empty:
                break
            if task is not None:
                task.drop()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
