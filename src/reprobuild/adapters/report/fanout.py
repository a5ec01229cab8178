"""One reporter that passes events to several."""

from __future__ import annotations

from collections.abc import Sequence

from reprobuild.core.encoding import Value
from reprobuild.ports import Reporter


class Fanout:
    """Passes each event to all, in order."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = tuple(reporters)

    def emit(self, event: str, **fields: Value) -> None:
        """Passes the event on."""
        for reporter in self._reporters:
            reporter.emit(event, **fields)
