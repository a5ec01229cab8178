"""Watching over one running build: its log, its limits, and the wish to stop it."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from reprobuild.adapters.sandbox.usage import DiskWatch
from reprobuild.ports import Wish

LOG_LIMIT = 64 * 2**20
"""Bytes of a log that are kept."""

_TICK_MS = 100
_CHUNK = 1 << 16


class Followed(Protocol):
    """A build that was started."""

    @property
    def log(self) -> int:
        """Reads what it prints."""
        ...

    def alive(self) -> bool:
        """Whether something of it may still run."""
        ...

    def signs(self) -> tuple[int, ...]:
        """Descriptors that are readable when there is something to heed."""
        ...

    def heed(self, sign: int) -> bool:
        """Takes in what there is; whether more may come from that descriptor."""
        ...

    def kill(self) -> None:
        """Has every process of it ended."""
        ...

    def settle(self) -> None:
        """Takes in the last that is said of it, when it is no longer alive."""
        ...

    def exit_code(self) -> int | None:
        """The command's status (128 + N for signal N); None when it was never known."""
        ...

    def died(self) -> int:
        """The signal that ended what held the build, before the command was over; 0 where none
        did. The kernel then has killed the build."""
        ...

    def end(self) -> None:
        """Kills what is left, waits until nothing is, and closes the descriptors."""
        ...


@dataclass(frozen=True, slots=True)
class Watch:
    """What a build is held to: wall-clock `timeout` and `silence` in seconds, `disk`,
    and `cancel`, the wish to stop it."""

    timeout: float
    silence: float
    disk: DiskWatch
    cancel: Wish
    log_limit: int = LOG_LIMIT


class LogWriter:
    """Writes a build's log up to a limit, then counts."""

    def __init__(self, log: BinaryIO, limit: int) -> None:
        self._log = log
        self._left = limit
        self._limit = limit
        self._dropped = 0
        self._at_line_start = True
        self.head = b""

    def write(self, data: bytes) -> None:
        """Takes a piece of output."""
        if len(self.head) < 4096:
            self.head += data[:4096]
        kept = data[: self._left]
        self._left -= len(kept)
        self._dropped += len(data) - len(kept)
        if kept:
            self._log.write(kept)
            self._at_line_start = kept.endswith(b"\n")

    def note(self, text: str) -> None:
        """Adds a line of ours."""
        start = b"" if self._at_line_start else b"\n"
        self._log.write(start + f"[reprobuild: {text}]\n".encode(errors="replace"))
        self._at_line_start = True

    def close(self) -> None:
        """Says what was dropped; the log itself stays open."""
        if self._dropped:
            self.note(
                f"the log was cut after {self._limit} bytes; {self._dropped} more were dropped"
            )
        self._log.flush()


def supervise(running: Followed, log: LogWriter, watch: Watch) -> str:
    """Follows the build to its end, or ends it.

    Returns the reason for which it was ended, empty when it ended by itself. Whatever happens,
    the caller has to `running.end()`.
    """
    begin = last_output = time.monotonic()
    poll = select.poll()
    for descriptor in (running.log, *running.signs()):
        poll.register(descriptor, select.POLLIN)
    log_open = True
    # Who wishes is asked as soon as the build runs, not a tick later: it may begin something.
    reason = "interrupted" if watch.cancel.is_set() else ""
    if reason:
        running.kill()
    while running.alive():
        for descriptor, _ in poll.poll(_TICK_MS):
            if descriptor != running.log:
                if not running.heed(descriptor):
                    poll.unregister(descriptor)
                continue
            data = os.read(running.log, _CHUNK)
            if data:
                last_output = time.monotonic()
                log.write(data)
            else:
                poll.unregister(running.log)
                log_open = False
        if not running.alive() or reason:
            continue
        now = time.monotonic()
        if watch.cancel.is_set():
            reason = "interrupted"
        elif now - begin > watch.timeout:
            reason = "timeout"
        elif now - last_output > watch.silence:
            reason = "silence"
        elif watch.disk.exceeded():
            reason = "output-size"
        if reason:
            running.kill()
    running.settle()
    while log_open and _ready(running.log):
        data = os.read(running.log, _CHUNK)
        if not data:
            break
        log.write(data)
    return reason


def _ready(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
