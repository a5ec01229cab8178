"""The live view on a terminal: what runs and for how long, below a log of what ended."""

from __future__ import annotations

import threading
import time

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from reprobuild.adapters.report.progress import Progress
from reprobuild.core.encoding import Value

_ROWS = 8
_STYLES = {"built": "green", "fetched": "cyan", "cut-off": "dim", "failed": "bold red"}


class LiveReporter:
    """Draws with rich on standard error; `close` leaves the terminal as it was."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress()
        self._lock = threading.Lock()
        self._live: Live | None = None

    def emit(self, event: str, **fields: Value) -> None:
        """Takes the event; starts drawing with the first that plans work."""
        with self._lock:
            line = self._progress.take(event, fields)
            if event == "plan" and self._live is None:
                self._live = Live(
                    get_renderable=self._view,
                    console=self._console,
                    refresh_per_second=8,
                    transient=True,
                )
                self._live.start()
            if line:
                how = str(fields.get("how", event))
                self._console.print(Text(line, style=_STYLES.get(how, "")), soft_wrap=True)

    def _view(self) -> Group:
        now = time.monotonic()
        rows = [
            Text(f"  {name}{_amount(entry.done, entry.total)}  {now - entry.since:.0f} s")
            for name, entry in list(self._progress.running.items())[:_ROWS]
        ]
        more = len(self._progress.running) - len(rows)
        if more > 0:
            rows.append(Text(f"  and {more} more"))
        return Group(Text(f"{self._progress.summary()} realizing", style="bold"), *rows)

    def close(self) -> None:
        """Stops drawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _amount(done: int, total: int) -> str:
    if not total:
        return ""
    return f"  {done / 2**20:.0f}/{total / 2**20:.0f} MiB"
