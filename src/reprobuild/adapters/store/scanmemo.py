"""Scans of source files by blob (engine.narrow.ScanMemo), in one SQLite file of the cache.

Losing it costs the time to scan again. A damaged file is thrown away, not trusted: a wrong scan
could hide a header from a build.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from reprobuild.core.digest import Digest

VERSION = 5
"""Moves when core/includes/scan.py finds other things in the same text."""


class SqliteScanMemo:
    """One connection, used under a lock; rows carry a digest of their own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection | None:
        if self._connection is None:
            with suppress(OSError, sqlite3.Error):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                connection = sqlite3.connect(
                    self._path, timeout=10, isolation_level=None, check_same_thread=False
                )
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=OFF")
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS scan_v{VERSION} "
                    "(blob BLOB PRIMARY KEY, scan BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID"
                )
                self._connection = connection
        return self._connection

    def get(self, blob: Digest) -> bytes | None:
        """What was put for a blob, if it is whole."""
        with self._lock, suppress(sqlite3.Error):
            connection = self._open()
            if connection is None:
                return None
            row = connection.execute(
                f"SELECT scan, sum FROM scan_v{VERSION} WHERE blob = ?",  # noqa: S608 - a constant
                (blob.raw,),
            ).fetchone()
            if row is not None and Digest.of(blob.raw + row[0]).raw == row[1]:
                return bytes(row[0])
        return None

    def put(self, scans: Mapping[Digest, bytes]) -> None:
        """Remembers, in one transaction; a full disk only means that nothing is remembered."""
        if not scans:
            return
        with self._lock, suppress(sqlite3.Error):
            connection = self._open()
            if connection is None:
                return
            rows = [(b.raw, s, Digest.of(b.raw + s).raw) for b, s in scans.items()]
            connection.execute("BEGIN")
            connection.executemany(
                f"INSERT OR IGNORE INTO scan_v{VERSION} VALUES (?, ?, ?)",  # noqa: S608
                rows,
            )
            connection.execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
