"""A reporter that remembers."""

from __future__ import annotations

from reprobuild.core.encoding import Value


class Recorder:
    """Keeps every event as (name, fields)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Value]]] = []

    def emit(self, event: str, **fields: Value) -> None:
        self.events.append((event, fields))

    def named(self, event: str) -> list[dict[str, Value]]:
        return [fields for name, fields in self.events if name == event]
