"""Looks after what is under way at servers: ends it on cancel, and where a server is of no use.

A server behind a broken network keeps its streams open for as long as nobody writes to them, and
one that has its content from another waits for that one without a word. So a server that something
has been asked of for a while is asked, now and then, whether it is still there, and whether it
reaches content.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from reprobuild.adapters.remote.server import Server
from reprobuild.errors import ReprobuildError

EVERY = 3.0
"""Seconds between questions."""

ANSWER = 4.0
CONTENT = 8.0
"""Seconds for an answer, and then for one about content."""

MISSES = 2
PATIENT_MISSES = 5
"""Missing answers in a row that mean that the server is lost. What is at work there may come to
its end, and its content come back: as long as the server itself answers, it is left for longer."""


class Asked(Protocol):
    """Something under way at a server."""

    @property
    def server(self) -> Server:
        """Of whom it is asked."""
        ...

    @property
    def started(self) -> float:
        """When, by the monotonic clock."""
        ...

    @property
    def patient(self) -> bool:
        """Whether the server can go on with it by itself for a while."""
        ...

    def give_up(self, reason: str) -> None:
        """Ends it soon; called at most once."""
        ...


class Watch:
    """One thread for all that a run asks of `servers`; `note` takes words for people."""

    def __init__(
        self, servers: Sequence[Server], cancel: threading.Event, note: Callable[[str], None]
    ) -> None:
        self._servers, self._cancel, self._note = list(servers), cancel, note
        self._open: set[Asked] = set()
        self._due: dict[str, float] = {}
        self._missed: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="remote-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def add(self, asked: Asked) -> None:
        """From now on it is looked after."""
        with self._lock:
            self._open.add(asked)

    def remove(self, asked: Asked) -> None:
        """It came to its end."""
        with self._lock:
            self._open.discard(asked)

    def _run(self) -> None:
        stopped = False
        while not self._closed.wait(0.2):
            if not self._cancel.is_set():
                self._ask()
                continue
            self._end("stopped", lambda _: True)
            if not stopped:  # also what nobody looks after
                stopped = True
                for server in self._servers:
                    server.reset()

    def _end(self, reason: str, which: Callable[[Asked], bool]) -> None:
        """What is ended is looked after no more: who ends has time to say so to the server."""
        with self._lock:
            ended = [asked for asked in self._open if which(asked)]
            self._open.difference_update(ended)
        for asked in ended:
            asked.give_up(reason)
        for server in {id(asked.server): asked.server for asked in ended}.values():
            server.reset()  # uploads and downloads, too

    def _ask(self) -> None:
        """Never waits itself: cancelling has to be noticed all the while."""
        now = time.monotonic()
        with self._lock:
            wanted = {a.server.host: a.server for a in self._open if a.started < now - EVERY}
            due = [server for host, server in wanted.items() if now >= self._due.get(host, 0.0)]
            self._due.update((server.host, float("inf")) for server in due)
        for server in due:
            threading.Thread(target=self._ask_one, args=(server,), daemon=True).start()

    def _ask_one(self, server: Server) -> None:
        try:
            idle = server.idle(ANSWER, CONTENT)
        except ReprobuildError:
            idle = None  # credentials: what was asked will say so itself
        with self._lock:
            missed = self._missed[server.host] = self._missed.get(server.host, 0) + 1
            if idle is None:
                self._missed[server.host] = 0
            self._due[server.host] = time.monotonic() + EVERY
        if idle is None or self._cancel.is_set():
            return
        if missed == 1:
            self._note(f"{server.host}: {idle.why}; it is given up if that lasts")
        if missed >= MISSES:
            every = missed >= PATIENT_MISSES or not idle.there
            self._end(idle.why, lambda a: a.server is server and (every or not a.patient))
