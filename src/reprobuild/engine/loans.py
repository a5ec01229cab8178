"""The inputs of one build, shown before they are known to be sound, and settled after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from reprobuild.core.derivation import InputContent
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Loan

_PATIENCE_SECONDS = 0.02
"""What a sandbox takes to begin, and a trivial build to end. A look at the same time would slow
both down, since threads share one interpreter; what ends sooner is looked at then."""


class SpoiltError(ReprobuildError):
    """E-STORE-DAMAGED of a build that was shown something else than its input. The input has been
    made again since, so the build can be tried once more."""


def placed(content: ContentStore, found: InputContent) -> Path:
    """Where an input lies, known to be sound."""
    if found.is_file:
        return content.materialise_blob(found.digest, executable=found.executable)
    return content.materialise(found.digest)


class Loans:
    """What one build is lent. Nothing that it made, and no failure of it, is to be believed before
    it is `settled`."""

    def __init__(self, content: ContentStore, cancel: threading.Event) -> None:
        self._content = content
        self._cancel = cancel
        self._lent: dict[Digest, Loan] = {}
        self._shown: set[InputContent] = set()
        self._looking = False

    def path(self, found: InputContent) -> Path:
        """Where an input lies; a file is one inode to look at, and not lent."""
        self._shown.add(found)
        if found.is_file:
            return placed(self._content, found)
        loan = self._lent[found.digest] = self._content.lend(found.digest)
        return loan.path

    def is_set(self) -> bool:
        """Whether the build should end now: all are to, or an input was found spoilt.

        Who asks has begun a build and waits for it, so now is the time to look.
        """
        if not self._looking:
            self._looking = True
            unseen = [loan for loan in self._lent.values() if loan.known() is None]
            if unseen:
                look = partial(_look, unseen)
                threading.Thread(target=look, name="look", daemon=True).start()
        return self._cancel.is_set() or any(loan.known() is False for loan in self._lent.values())

    @contextmanager
    def settled(self, name: str) -> Iterator[None]:
        """In it the build `name` is tried. What comes of that, its error too, stands only if all
        that it was lent was sound; where everything is being stopped, an error needs no proof."""
        try:
            yield
        except Exception:
            if not self._cancel.is_set():
                self._settle(name)
                self.require_unchanged(name)
            raise
        self._settle(name)

    def _settle(self, name: str) -> None:
        """Waits until all is known to be sound.

        Raises `SpoiltError`, or E-STORE-MISSING, E-STORE-DAMAGED or E-STORE-WRITE for an input that
        cannot be made again.
        """
        spoilt = [tree for tree, loan in self._lent.items() if not loan.sound()]
        for tree in spoilt:
            self._content.materialise(tree)
        if spoilt:
            raise _spoilt(name, spoilt)

    def require_unchanged(self, name: str) -> None:
        """For who is about to report a failure: raises as `settled` does where an input changed
        after it had been looked at. (Before a result is recorded, commit.py looks.)"""
        changed = self._content.changed(list(self._shown))
        for found in changed:
            placed(self._content, found)
        if changed:
            raise _spoilt(name, [found.digest for found in changed])


def _spoilt(name: str, trees: Iterable[Digest]) -> SpoiltError:
    return SpoiltError(
        "E-STORE-DAMAGED",
        f"{name} was shown a directory of the store that somebody had changed "
        f"({', '.join(tree.short for tree in trees)}); it has been made again",
        hint="run it again",
    )


def _look(loans: list[Loan]) -> None:
    time.sleep(_PATIENCE_SECONDS)
    for loan in loans:
        loan.sound()
