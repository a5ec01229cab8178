"""The servers of one run: who is there, how much each takes, and whom not to ask any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from reprobuild.adapters.remote.download import Downloader
from reprobuild.adapters.remote.server import Server
from reprobuild.adapters.remote.upload import Uploader

START = 2
"""Actions under way on a server of which nothing is known yet."""

TELL = 2.0
"""Seconds of waiting for servers after which people are told."""

_BACK_OFF = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds for which a server that failed is let be, by failures in a row."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Both ways of content to and from a server, by the digest function that was agreed on."""

    up: Uploader
    down: Downloader


@dataclass(slots=True)
class Node:
    """A server, its transfers once a digest function is agreed on, and what was learned of it.

    `failures` in a row since it last was of use, the last of which was `trouble`. `window` is how
    many actions may be under way: it grows by one for as many as came back without having waited
    for a worker, and shrinks when they queue or the server says that it has enough.
    """

    server: Server
    most: int
    fixed: bool = False
    window: float = START
    active: int = 0
    failures: int = 0
    trouble: str = ""
    until: float = 0.0
    banned: str = ""
    done: int = 0
    transfers: Transfers | None = None

    @property
    def uploader(self) -> Uploader:
        """For what it lacks."""
        assert self.transfers is not None
        return self.transfers.up

    @property
    def downloader(self) -> Downloader:
        """For what it made."""
        assert self.transfers is not None
        return self.transfers.down

    def close(self) -> None:
        """Ends what is under way."""
        if self.transfers is not None:
            self.transfers.up.close()
            self.transfers.down.close()
        self.server.close()

    @property
    def name(self) -> str:
        """Its `host:port`."""
        return self.server.host

    def up(self, now: float) -> bool:
        """Whether it may be asked."""
        return not self.banned and now >= self.until

    @property
    def room(self) -> int:
        """How many actions more it takes."""
        return int(self.window) - self.active


@dataclass(slots=True)
class Nodes:
    """All of them. Safe for many threads."""

    nodes: list[Node]
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _quiet_since: float | None = None
    _told: bool = False

    def slots(self) -> int:
        """How many actions may be under way on all that answer."""
        with self._lock:
            now = self.clock()
            return sum(max(1, int(n.window)) for n in self.nodes if n.up(now))

    @property
    def most(self) -> int:
        """What `slots` never exceeds."""
        return sum(n.most for n in self.nodes)

    def take(self, avoid: frozenset[str] = frozenset(), *, urgent: bool = True) -> Node | None:
        """The server with most room, its action counted as under way.

        Those of `avoid` come last. None when nobody answers; not `urgent`, also when nobody else
        has room.
        """
        with self._lock:
            now = self.clock()
            there = [n for n in self.nodes if n.up(now)]
            if not urgent:
                there = [n for n in there if n.room > 0 and n.name not in avoid]
            if not there:
                return None
            best = min(there, key=lambda n: (n.name in avoid, n.active / n.window, n.done))
            best.active += 1
            return best

    def give(self, node: Node) -> None:
        """The action is not under way any more."""
        with self._lock:
            node.active -= 1

    def good(self, node: Node, *, queued: float, ran: float) -> None:
        """An action came back after so many seconds in the queue and at work."""
        with self._lock:
            node.done += 1
            self._use(node)
            if node.fixed:
                return
            if queued > max(0.5, 2 * ran) and node.window > 1:
                node.window = max(1.0, node.window - 1)
            elif node.active >= int(node.window) and queued < max(0.25, 0.5 * ran):
                node.window = min(node.most, node.window + 1)

    def took(self, node: Node) -> None:
        """It took an action on."""
        with self._lock:
            self._use(node)

    def _use(self, node: Node) -> None:
        node.failures, node.until = 0, 0.0
        self._quiet_since, self._told = None, False

    def full(self, node: Node) -> None:
        """It said that it has enough."""
        with self._lock:
            self._use(node)
            if not node.fixed:
                node.window = max(1.0, node.window / 2)
            node.until = self.clock() + 0.2

    def lost(self, node: Node, trouble: str) -> None:
        """It is of no use, for that reason: it is let be, longer each time."""
        with self._lock:
            node.trouble = trouble
            pause = _BACK_OFF[min(node.failures, len(_BACK_OFF) - 1)]
            node.failures += 1
            node.until = self.clock() + pause
            if self._quiet_since is None and all(n.failures or n.banned for n in self.nodes):
                self._quiet_since = self.clock()

    def quiet(self) -> float:
        """Seconds since the last one was lost; 0.0 while one is of use, or was not tried yet."""
        with self._lock:
            return 0.0 if self._quiet_since is None else self.clock() - self._quiet_since

    def troubles(self) -> str:
        """Who is of no use, and why."""
        with self._lock:
            return "; ".join(
                f"{n.name}: {n.banned or n.trouble}" for n in self.nodes if n.banned or n.failures
            )

    def names(self) -> str:
        """All of them."""
        return ", ".join(n.name for n in self.nodes)

    def tells(self) -> bool:
        """Whether people are to hear that nobody is of use: once, after `TELL` seconds of it."""
        quiet = self.quiet()
        with self._lock:
            told, self._told = self._told, self._told or quiet >= TELL
            return self._told and not told

    def ban(self, node: Node, reason: str) -> None:
        """It is not asked any more in this run."""
        with self._lock:
            node.banned = reason

    def soonest(self) -> float | None:
        """Seconds until one that failed may be asked again; None when all are banned."""
        with self._lock:
            now = self.clock()
            waits = [max(0.0, n.until - now) for n in self.nodes if not n.banned]
            return min(waits, default=None)

    def bans(self) -> dict[str, str]:
        """Who is not asked any more, and why."""
        with self._lock:
            return {n.name: n.banned for n in self.nodes if n.banned}
