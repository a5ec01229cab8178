"""A timeline in the Chrome trace event format, for `chrome://tracing`, Perfetto and speedscope.

Process 1 is this machine, every remote server one of its own. A row of a process is one thing at a
time; a span is a derivation from its turn to its end, on a server the time in its queue and the
time at work. Times in microseconds since the run began.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from reprobuild.adapters.places import check_place
from reprobuild.adapters.report.whole import write_whole
from reprobuild.core.encoding import Value

HERE = "this machine"


@dataclass
class ChromeTrace:
    """A reporter that keeps spans, and writes them when it is closed."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _spans: list[dict[str, Value]] = field(default_factory=list)
    _since: dict[str, float] = field(default_factory=dict)
    _rows: dict[str, list[float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        check_place(self.path, "--trace")
        self._begin = self.clock()

    def emit(self, event: str, **fields: Value) -> None:
        """Takes an event."""
        now = self.clock()
        name = str(fields.get("name", ""))
        with self._lock:
            if event == "started":
                self._since[name] = now
            elif event in ("finished", "failed"):
                how = str(fields.get("how") or fields.get("code") or event)
                self._span(HERE, name, how, self._since.pop(name, now), now, fields)
            elif event == "remote" and fields.get("node"):
                node = str(fields["node"])
                ran = cast(int, fields.get("duration_ms") or 0) / 1000
                queued = cast(int, fields.get("queued_ms") or 0) / 1000
                self._span(node, name, "remote", max(self._begin, now - ran), now, fields)
                if queued >= 0.001:
                    begin = max(self._begin, now - ran - queued)
                    self._span(f"{node} (queue)", name, "queue", begin, now - ran, {})
            elif event == "note":
                self._spans.append(
                    {
                        "args": {},
                        "name": str(fields.get("text", ""))[:200],
                        "ph": "i",
                        "pid": self._process(HERE),
                        "s": "g",
                        "tid": 0,
                        "ts": self._micro(now),
                    }
                )

    def _span(
        self, where: str, name: str, kind: str, begin: float, end: float, args: dict[str, Value]
    ) -> None:
        rows = self._rows.setdefault(where, [])
        row = next((i for i, until in enumerate(rows) if until <= begin), len(rows))
        if row == len(rows):
            rows.append(end)
        rows[row] = end
        self._spans.append(
            {
                "args": {k: v for k, v in args.items() if k != "name"},
                "cat": kind,
                "dur": max(1, round((end - begin) * 1e6)),
                "name": name,
                "ph": "X",
                "pid": self._process(where),
                "tid": row + 1,
                "ts": self._micro(begin),
            }
        )

    def _process(self, where: str) -> int:
        self._rows.setdefault(HERE, [])
        self._rows.setdefault(where, [])
        return list(self._rows).index(where) + 1

    def _micro(self, moment: float) -> int:
        return max(0, round((moment - self._begin) * 1e6))

    def close(self) -> None:
        """Writes the file; raises E-WRITE."""
        with self._lock:
            names: list[dict[str, Value]] = [
                {
                    "args": {"name": where},
                    "name": "process_name",
                    "ph": "M",
                    "pid": number,
                    "tid": 0,
                }
                for number, where in enumerate(self._rows, 1)
            ]
            document = {"displayTimeUnit": "ms", "traceEvents": [*names, *self._spans]}
        write_whole(self.path, json.dumps(document, ensure_ascii=False).encode() + b"\n")
