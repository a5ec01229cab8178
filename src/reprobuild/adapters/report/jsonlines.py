"""Events as JSON lines, for `--events FILE` (or the number of an open descriptor)."""

from __future__ import annotations

import json
import os
import select
import threading
import time

from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError


class JsonLines:
    """Appends one object a line: `event`, `time` (seconds since the epoch) and the fields."""

    def __init__(self, target: str) -> None:
        try:
            self._descriptor = (
                os.dup(int(target))
                if target.isdigit()
                else os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            )
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "there is no such descriptor"
            raise ReprobuildError("E-USAGE", f"--events {target}: {why}", file=target) from error
        self._target = target
        self._lock = threading.Lock()
        self._over = False
        self.lost = ""
        """Why events are missing at the end; empty when none is, or nobody reads them any more."""

    def emit(self, event: str, **fields: Value) -> None:
        """Writes the event in one call; a reader that went away is not an error of the build.

        After one that could not be written there are no more: half a line may be the last.
        """
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}) + "\n"
        with self._lock:
            data = line.encode()
            while data and not self._over:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:  # a descriptor that was given to us not to wait
                    poll = select.poll()
                    poll.register(self._descriptor, select.POLLOUT)
                    poll.poll()
                except BrokenPipeError:
                    self._over = True
                except OSError as error:
                    self._over = True
                    self.lost = f"--events {self._target}: {error.strerror}; the rest is missing"
