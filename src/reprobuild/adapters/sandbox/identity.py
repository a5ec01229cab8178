"""Unprivileged user ids for builds that root starts: one for each build at a time.

A build's files belong to its uid, so two builds that run at once must never share one, in
whatever process they run. A slot is an exclusive lock on a file named after the uid; it dies with
the process that holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprobuild.errors import ReprobuildError

FIRST_UID = 62_000
COUNT = 512


class UidPool:
    """Uids `first` … `first + count - 1`, shared by all processes that use `directory`."""

    def __init__(self, directory: Path, first: int = FIRST_UID, count: int = COUNT) -> None:
        self._directory = directory
        self._uids = range(first, first + count)

    @contextmanager
    def acquire(self) -> Iterator[int]:
        """A uid (and gid of the same number) that nobody else uses until the context ends.

        Uids that have a name on this host are passed over. Raises E-SANDBOX-SETUP when all are
        taken.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for uid in self._uids:
            descriptor = os.open(
                self._directory / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            except BaseException:
                os.close(descriptor)
                raise
            try:
                if not _named(uid):
                    yield uid
                    return
            finally:
                os.close(descriptor)
        raise ReprobuildError(
            "E-SANDBOX-SETUP",
            f"no free user id for a build between {self._uids.start} and {self._uids.stop - 1}",
            hint="run fewer builds at once, or set another range of user ids",
        )


def _named(uid: int) -> bool:
    with contextlib.suppress(KeyError):
        pwd.getpwuid(uid)
        return True
    return False
