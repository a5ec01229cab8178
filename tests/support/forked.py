"""Work in a process of its own that dies, or is refused by the disk, at a chosen point.

A point is any call that changes the disk: every operation of the store's `durable` module, and
every other file operation of the interpreter below the given directory (work directories, logs,
documents that the engine writes). The child dies by SIGKILL, so nothing of ours runs after it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprobuild.adapters.store import durable
from reprobuild.errors import ReprobuildError
from support.faults import OPERATIONS

KILL, KILL_AFTER, SHORT = "kill", "kill-after", "short"
"""Before the operation, after it; or every write takes half of its bytes."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_EVENTS = frozenset({
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod",
    "os.utime", "os.truncate", "open",
})  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How the child ended. `said` is "done", an error code, "killed" or a traceback."""

    said: str
    exit_status: int
    points: int
    fired: str

    @property
    def done(self) -> bool:
        """It ended well."""
        return self.said == "done"


class _Depth(threading.local):
    """How deep a thread is inside operations that were counted already."""

    value = 0


class _Points:
    """Counts in the child, and acts at the chosen one."""

    def __init__(self, home: Path, at: int, fault: str | int, tell: Callable[[], None]) -> None:
        self._home = f"{home}/"
        self._at = at
        self._fault = fault
        self._tell = tell
        self._inside = _Depth()
        self._lock = threading.Lock()
        self.count = 0
        self.fired = ""

    def install(self) -> None:
        """Replaces the operations, for good: the process is the child's own."""
        for name in OPERATIONS:
            setattr(durable, name, self._wrap(name, getattr(durable, name)))
        sys.addaudithook(self._audit)

    def off(self) -> None:
        """Lets everything through."""
        self._at = 0
        self._fault = ""

    def _hit(self, name: str) -> bool:
        with self._lock:
            self.count += 1
            if self.count != self._at:
                return False
            self.fired = name
        return True

    def _die(self) -> None:
        self._tell()
        os.kill(os.getpid(), signal.SIGKILL)

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **keywords: Any) -> Any:
            hit = self._hit(name)
            if hit and self._fault == KILL:
                self._die()
            if hit and isinstance(self._fault, int):
                raise OSError(self._fault, os.strerror(self._fault), *_named(args))
            self._inside.value += 1
            try:
                if self._fault == SHORT and name == "write_some":
                    return real(args[0], bytes(args[1])[: max(1, len(args[1]) // 2)])
                return real(*args, **keywords)
            finally:
                self._inside.value -= 1
                if hit and self._fault == KILL_AFTER:
                    self._die()

        return operation

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _EVENTS or self._inside.value:
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & _WRITES):
            return
        path = args[0]
        if not isinstance(path, (str, bytes, Path)):
            return
        text = os.fsdecode(path)
        if os.path.isabs(text) and not text.startswith(self._home):
            return
        if self._hit(event):
            if isinstance(self._fault, int):
                raise OSError(self._fault, os.strerror(self._fault), text)
            if self._fault in (KILL, KILL_AFTER):
                self._die()


def _named(args: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(os.fsdecode(a) for a in args[:1] if isinstance(a, (str, bytes, Path)))


def forked(
    work: Callable[[], object],
    home: Path,
    *,
    at: int = 0,
    fault: str | int = KILL,
    seconds: float = 120,
) -> Outcome:
    """Runs `work` in a child; `at` counts points below `home` from 1, 0 never fails.

    Raises AssertionError when the child neither ends nor is killed within `seconds`.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child(work, home, at, fault, writing)
    os.close(writing)
    try:
        text = _read(reading, time.monotonic() + seconds)
        if text is None:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    assert text is not None, f"hangs at point {at} ({fault})"
    told = json.loads(text)
    return Outcome(told["said"], told["status"], told["points"], told["fired"])


def _read(descriptor: int, deadline: float) -> bytes | None:
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return b"".join(parts)
        parts.append(piece)


def _child(work: Callable[[], object], home: Path, at: int, fault: str | int, writing: int) -> None:
    said, status = "killed", -signal.SIGKILL

    def tell() -> None:
        told = {"said": said, "status": status, "points": points.count, "fired": points.fired}
        with suppress(OSError):
            os.write(writing, json.dumps(told).encode())

    points = _Points(home, at, fault, tell)
    try:
        points.install()
        try:
            work()
            said, status = "done", 0
        except ReprobuildError as error:
            said, status = error.code, error.exit_status
        except BaseException:  # noqa: BLE001 - a process ends here, whatever it was
            said, status = traceback.format_exc(), 70
        points.off()
        tell()
    finally:
        os._exit(0)
