"""What a binary cache said that it does not have, remembered for a while."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path

from reprobuild.core.digest import Digest

FORGET = 3600
"""Seconds for which "not here" is remembered."""


class Absences:
    """One cache's negative answers: an empty file for each recipe below `memory`.

    Nothing depends on it but speed; where it cannot be written, every question is asked.
    """

    def __init__(self, memory: Path, address: str) -> None:
        self._home = memory / hashlib.sha256(address.encode()).hexdigest()[:16]

    def knows(self, drv: Digest) -> bool:
        """Whether the cache said so less than `FORGET` seconds ago."""
        try:
            return 0 <= time.time() - (self._home / drv.hex).stat().st_mtime < FORGET
        except OSError:
            return False

    def learn(self, drv: Digest) -> None:
        """The cache has just said that it does not have it."""
        with suppress(OSError):
            self._home.mkdir(parents=True, exist_ok=True)
            (self._home / drv.hex).touch()

    def forget(self, drv: Digest) -> None:
        """It has it now: this machine has put it there."""
        with suppress(OSError):
            (self._home / drv.hex).unlink()
