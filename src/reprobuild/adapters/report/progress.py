"""What is going on, gathered from events: the state behind both the plain and the live view."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import cast

from reprobuild.core.encoding import Value


@dataclass(slots=True)
class Running:
    """One thing under way: its kind, when it began (monotonic seconds), bytes so far."""

    kind: str
    since: float
    done: int = 0
    total: int = 0


@dataclass(slots=True)
class Progress:
    """Counts and what runs, kept up to date by `take`."""

    planned: int = 0
    done: int = 0
    running: dict[str, Running] = field(default_factory=dict)

    def take(self, event: str, fields: dict[str, Value]) -> str:
        """Takes an event; the line that a plain log shows for it, or nothing."""
        name = str(fields.get("name", ""))
        if event == "plan":
            build, fetch = cast(int, fields["build"]), cast(int, fields["fetch"])
            # One command may realize several times; what ended before stays counted.
            self.planned = max(self.planned, self.done) + build + fetch
            return f"to do: {build} to build, {fetch} to fetch"
        if event == "started":
            self.running[name] = Running(str(fields.get("kind", "")), time.monotonic())
            return ""
        if event == "fetch-progress" and name in self.running:
            entry = self.running[name]
            entry.done = cast(int, fields.get("done") or 0)
            entry.total = cast(int, fields.get("total") or 0)
            return ""
        if event in ("finished", "failed"):
            entry = self.running.pop(name, Running("", time.monotonic()))
            seconds = time.monotonic() - entry.since
            if fields.get("code") == "E-INTERRUPTED":
                return f"stopped   {name}"
            if event == "failed":
                return f"failed    {name}: {fields.get('error')}"
            self.done += 1
            return f"{fields.get('how', ''):<9} {name}  ({seconds:.1f} s)"
        if event == "retried":
            return f"again     {name}"
        if event == "note":
            return f"note: {fields.get('text')}"
        return ""

    def summary(self) -> str:
        """`[3/17]`, for the head of a line; only the count where no plan was announced."""
        return f"[{self.done}/{self.planned}]" if self.planned else f"[{self.done}]"
