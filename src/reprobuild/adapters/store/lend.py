"""Trees that are shown at once, and looked at meanwhile.

What an earlier process made is looked at inode by inode (made.py): a few milliseconds for a small
tree, a fifth of a second for 50,000 files, the reading of every byte where nothing is remembered.
Nobody has to wait for that before a build begins, only before its result is believed. And the look
says at least as much then: a ctime cannot be set back, so what is found unchanged while a build
runs was unchanged when it began.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from reprobuild.adapters.store.materialise import Materialiser
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError

_TOP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Known:
    """A tree that had been looked at before it was lent (ports.Loan)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def known(self) -> bool | None:
        """That it is sound."""
        return True

    def sound(self) -> bool:
        """Always."""
        return True


class Unseen:
    """A tree that has not been looked at when it is lent (ports.Loan)."""

    def __init__(self, path: Path, top: int, make: Callable[[], Path]) -> None:
        """`top` is a descriptor of `path`, closed in the end; `make` finds it sound, or makes
        another."""
        self.path = path
        self._top = top
        self._make = make
        self._sound: bool | None = None
        self._looking = threading.Lock()

    def known(self) -> bool | None:
        """Whether it is sound; None until it was looked at."""
        return self._sound

    def sound(self) -> bool:
        """Looks, or waits for another thread that does."""
        with self._looking:
            if self._sound is None:
                self._sound = self._same()
            return self._sound

    def _same(self) -> bool:
        try:
            # As long as the descriptor is open, no other directory gets this one's number.
            return os.path.samestat(os.lstat(self._make()), os.fstat(self._top))
        except (OSError, ReprobuildError):  # who has it made again is told the reason
            return False
        except BaseException:
            self._sound = False
            raise
        finally:
            os.close(self._top)

    def end(self) -> None:
        """Waits for the look, if one has begun; none begins any more."""
        with self._looking:
            if self._sound is None:
                self._sound = False
                os.close(self._top)


class Lender:
    """Lends trees; one for each opened store."""

    def __init__(self, materialiser: Materialiser) -> None:
        self._materialiser = materialiser
        self._lock = threading.Lock()
        self._unseen: dict[Digest, Unseen] = {}

    def lend(self, tree: Digest) -> Known | Unseen:
        """The tree's directory; raises as `Materialiser.tree` does where it has to be made."""
        path = self._materialiser.home / tree.hex
        with self._lock:
            lent = self._unseen.get(tree)
            if lent is not None and lent.known() is None:
                return lent
            top = -1 if self._materialiser.knows(path) else _open(path)
            if top >= 0:
                lent = Unseen(path, top, lambda: self._materialiser.tree(tree))
                self._unseen[tree] = lent
                return lent
        return Known(self._materialiser.tree(tree))

    def close(self) -> None:
        """Waits for all looks: they may be making a tree again."""
        for lent in self._unseen.values():
            lent.end()


def _open(path: Path) -> int:
    """A descriptor of a directory that could be a tree's, or -1: the kind of the top is known
    before it is shown, so that no link can stand in for it."""
    try:
        top = os.open(path, _TOP)
    except OSError:
        return -1
    if stat.S_IMODE(os.fstat(top).st_mode) == 0o555:
        return top
    os.close(top)
    return -1
