"""The last build of each name (engine.history.History), in one SQLite file of the cache.

Estimates and explanations come from here, nothing that is reused: a file that is damaged or cannot
be written is as good as an empty one.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from reprobuild.core.digest import Digest
from reprobuild.core.past import Past
from reprobuild.errors import ReprobuildError

VERSION = 1


class SqliteHistory:
    """One connection, used under a lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

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
        """Remembers."""
        with self._lock, suppress(OSError, sqlite3.Error):
            self._open().execute(
                f"INSERT OR REPLACE INTO past_v{VERSION} VALUES (?, ?)",  # noqa: S608
                (name, _encode(past)),
            )

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
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
