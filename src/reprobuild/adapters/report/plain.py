"""Plain lines on standard error: for pipes, logs and TERM=dumb."""

from __future__ import annotations

import sys
import threading

from reprobuild.adapters.report.progress import Progress
from reprobuild.core.encoding import Value


class PlainReporter:
    """One line for each thing that ended; `verbose` also says what begins."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._progress = Progress()
        self._verbose = verbose
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Value) -> None:
        """Writes the event's line, if it has one."""
        with self._lock:
            line = self._progress.take(event, fields)
            if self._verbose and event == "started":
                line = f"started   {fields.get('name')}"
            if line:
                if event in ("finished", "failed"):
                    line = f"{self._progress.summary()} {line}"
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
