"""Looks after attempts that are under way: ends them on cancel, and where a server fell silent.

A server behind a broken network keeps its streams open for as long as nobody writes to them; so
who has had an action for a while is asked, now and then, whether it is still there.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from reprobuild.adapters.remote.attempt import Attempt
from reprobuild.errors import ReprobuildError

EVERY = 3.0
"""Seconds between questions."""

ANSWER = 4.0
"""Seconds for an answer; two missing ones in a row mean that the server is lost."""


class Watch:
    """One thread for all attempts of a run."""

    def __init__(self, cancel: threading.Event) -> None:
        self._cancel = cancel
        self._attempts: set[Attempt] = set()
        self._silent: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="remote-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def add(self, attempt: Attempt) -> None:
        """From now on it is looked after."""
        with self._lock:
            self._attempts.add(attempt)

    def remove(self, attempt: Attempt) -> None:
        """It came to its end."""
        with self._lock:
            self._attempts.discard(attempt)

    def _run(self) -> None:
        due = time.monotonic() + EVERY
        while not self._closed.wait(0.2):
            if self._cancel.is_set():
                self._end("stopped")
            elif time.monotonic() >= due:
                self._ask()
                due = time.monotonic() + EVERY

    def _end(self, reason: str, node: str = "") -> None:
        with self._lock:
            every = [a for a in self._attempts if not node or a.node.name == node]
        for attempt in every:
            attempt.give_up(reason)
        for server in {id(a.node): a.node.server for a in every}.values():
            server.reset()  # uploads and downloads, too

    def _ask(self) -> None:
        before = time.monotonic() - EVERY
        with self._lock:
            nodes = {a.node.name: a.node for a in self._attempts if a.started < before}
        threads = [
            threading.Thread(target=self._ask_one, args=(n,), daemon=True) for n in nodes.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask_one(self, node: object) -> None:
        from reprobuild.adapters.remote.nodes import Node

        assert isinstance(node, Node)
        answers = False
        with suppress(ReprobuildError):
            answers = node.server.answers(ANSWER)
        self._silent[node.name] = 0 if answers else self._silent.get(node.name, 0) + 1
        if self._silent[node.name] >= 2:
            self._end("it does not answer any more", node.name)
