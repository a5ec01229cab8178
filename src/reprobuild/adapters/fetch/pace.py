"""How a transfer goes: told to the reporter, and ended when it hardly goes at all."""

from __future__ import annotations

import math
import time

from reprobuild.adapters.fetch.http import TransferError, too_late
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.ports import Reporter


class Progress:
    """Emits `fetch-progress` (name, done, total; bytes) a few times a second."""

    def __init__(self, report: Reporter, name: str) -> None:
        self._report = report
        self._name = name
        self._next = 0.0

    def at(self, done: int, total: int) -> None:
        """`done` of `total` bytes are here; `total` is -1 where nobody said."""
        now = time.monotonic()
        if now >= self._next or done == total:
            self._next = now + 0.2
            self._report.emit("fetch-progress", name=self._name, done=done, total=max(total, 0))


class Pace:
    """Ends a body that trickles: fewer than `slowest` bytes a second over `read_timeout`.

    `ends` is when the whole must be here, by `time.monotonic`.
    """

    def __init__(self, settings: FetchSettings, ends: float = math.inf) -> None:
        self._ends = ends
        self._whole = settings.answer_timeout
        self._window = settings.read_timeout
        self._least = settings.slowest * settings.read_timeout
        self._since, self._bytes = time.monotonic(), 0

    def take(self, size: int) -> None:
        """Counts `size` bytes; raises a transient TransferError when it goes too slowly."""
        self._bytes += size
        now = time.monotonic()
        if now > self._ends:
            raise too_late(self._whole)
        if now - self._since > self._window:
            if self._bytes < self._least:
                raise TransferError("the answer trickles too slowly", transient=True)
            self._since, self._bytes = now, 0
