"""Events as JSON lines, for `--events FILE` (or the number of an open descriptor)."""

from __future__ import annotations

import json
import os
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
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Value) -> None:
        """Writes the event in one call; a reader that went away is not an error of the build."""
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}) + "\n"
        with self._lock:
            data = line.encode()
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                return
