"""The last build of each name (engine.history.History), in one SQLite file of the cache.

Estimates and explanations come from here, nothing that is reused: a file that is damaged or cannot
be written is as good as an empty one.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

from reprobuild.core.digest import Digest
from reprobuild.core.past import Past
from reprobuild.errors import ReprobuildError

VERSION = 1
_EVERY_SECONDS = 1
"""What comes sooner after the last write waits: a transaction costs as much as a small build."""


class SqliteHistory:
    """One connection, used under a lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._unwritten: dict[str, Past] = {}
        self._written = float("-inf")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=10, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS past_v{VERSION} "
                "(name TEXT PRIMARY KEY, past TEXT NOT NULL) WITHOUT ROWID"
            )
            self._connection = connection
        return self._connection

    def get(self, name: str) -> Past | None:
        """The last build that `put` was told of."""
        with (
            self._lock,
            suppress(OSError, sqlite3.Error, ValueError, KeyError, TypeError, ReprobuildError),
        ):
            if name in self._unwritten:
                return self._unwritten[name]
            row = (
                self._open()
                .execute(
                    f"SELECT past FROM past_v{VERSION} WHERE name = ?",  # noqa: S608 - a constant
                    (name,),
                )
                .fetchone()
            )
            if row is not None:
                return _decode(row[0])
        return None

    def put(self, name: str, past: Past) -> None:
        """Remembers; on the disk at once, or soon and with others, or at the end."""
        with self._lock:
            self._unwritten[name] = past
            if time.monotonic() - self._written >= _EVERY_SECONDS:
                self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        rows = [(name, _encode(past)) for name, past in self._unwritten.items()]
        self._unwritten.clear()
        with suppress(OSError, sqlite3.Error), self._open() as connection:
            connection.execute("BEGIN")
            connection.executemany(f"INSERT OR REPLACE INTO past_v{VERSION} VALUES (?, ?)", rows)  # noqa: S608

    def close(self) -> None:
        """Writes what is left, and closes the file."""
        with self._lock:
            if self._unwritten:
                self._write()
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _encode(past: Past) -> str:
    return json.dumps(
        {
            "duration_ms": past.duration_ms,
            "includes": past.includes.hex if past.includes else None,
            "peak_memory": past.peak_memory,
            "trees": {name: tree.hex for name, tree in past.trees.items()},
        }
    )


def _decode(text: str) -> Past:
    fields = json.loads(text)
    return Past(
        int(fields["peak_memory"]),
        int(fields["duration_ms"]),
        {str(name): Digest.parse(tree) for name, tree in fields["trees"].items()},
        Digest.parse(fields["includes"]) if fields["includes"] else None,
    )
