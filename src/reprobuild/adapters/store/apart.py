"""Adding blobs in another process (parts.py) for the store that is open in this one.

The other process writes below this one's own session in tmp/ and names nothing: what it wrote is
handed over, and passes the barrier here with everything else. Were it killed, what it left would
go with the session; were this one killed, the session would stay until the other ends as well,
which holds its lock.
"""

from __future__ import annotations

from reprobuild.adapters.store import paths
from reprobuild.adapters.store.capture import Keeping
from reprobuild.adapters.store.seen import Seen
from reprobuild.adapters.store.shelf import Shelf

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from typing import Any


class Notes:
    """Stands in for `Staging` there: notes what the one here is to be told."""

    def __init__(self, prefix: str, seen: str) -> None:
        self._prefix = prefix
        self.seen = Seen(seen)
        self._counter = 0
        self._mine: dict[tuple[str, bool], str] = {}
        self._new: list[tuple[str, bool, str]] = []
        self._touched: set[str] = set()

    def temporary(self) -> str:
        """A fresh name."""
        self._counter += 1
        return f"{self._prefix}{self._counter}"

    def blob(self, hex_digest: str, executable: bool) -> str | None:
        """The file of a blob that was written here."""
        return self._mine.get((hex_digest, executable))

    def add_blob(self, hex_digest: str, executable: bool, path: str) -> None:
        """Notes a complete temporary file."""
        self._mine[(hex_digest, executable)] = path
        self._new.append((hex_digest, executable, path))

    def touch(self, path: str) -> None:
        """Notes that the named object `path` was found present."""
        self._touched.add(path[: path.rindex("/")])

    def handed(self) -> Any:
        """What was noted since the last time: for `Staging.adopt`."""
        told = (self._new, list(self._touched), self.seen.taken())
        self._new, self._touched = [], set()
        return told


class KeepingApart(Keeping):
    """The taker there; `setup` is what `Keeping.apart` made."""

    def __init__(self, setup: tuple[str, str, str]) -> None:
        blobs, prefix, seen = setup
        self._notes = Notes(prefix, seen)
        super().__init__(Shelf(self._notes, lambda *blob: paths.blob(blobs, *blob)), None)

    def handed(self) -> Any:
        """What was written, and found, since the last time."""
        return self._notes.handed()
