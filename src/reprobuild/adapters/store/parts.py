"""The files of a large tree, given in parts to other processes (process.py).

A part is some files of one directory: as many short ones as come next, or long ones up to a size.
What comes back are their entries, or that it could not be done: then the walk does it itself, and
finds the same or says what is wrong. The process opens the directory from the walk's own start,
link by link, and it must be the very one that the walk saw.
"""

from __future__ import annotations

import os

from reprobuild.adapters.store.crew import Crew
from reprobuild.adapters.store.opening import reopen
from reprobuild.adapters.store.taking import OVERHEAD, WORTH, Frame, Others, Taking

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from typing import Any

SIZE = 128
"""Short files in a part."""
_SHORT = 32 * 2**20
"""Bytes that they may have at most: nobody has looked at them yet, and sparse ones claim a lot."""
_LONG = 4 * 2**20
"""Bytes of the long files in a part."""

Identity = tuple[int, int, int, int]


class Parts(Others):
    """What a walk has out in other processes."""

    def __init__(self, taking: Taking, root: int) -> None:
        self._taking = taking
        self._root = root
        self._crew = Crew("take", taking.taker.apart, self._done, worth=WORTH, directory=root)
        self._frame: Frame | None = None
        self._names: list[bytes] = []
        """Long files of `_frame` that are given away and not handed over yet."""
        self._size = 0
        """Their bytes."""
        self._promised = 0
        """Bytes of all long files that are given away and not counted yet."""

    def offer(self, frame: Frame, names: list[bytes]) -> int:
        """Gives away the first of a directory's files, as far as somebody has time; how many.

        None where files are long for the most part: their number says little then.
        """
        given = 0
        while given < len(names) and self._taking.short_files:
            part = names[given : given + SIZE]
            limit = min(self._taking.left - self._promised, _SHORT)
            if not self._ask(frame, part, len(part) * OVERHEAD, limit, 0):
                break
            given += len(part)
        return given

    def give(self, frame: Frame, name: bytes, size: int) -> bool:
        """Gives away a long file, when somebody has time."""
        if size > self._taking.left - self._promised:
            return False  # the walk says so
        if not self._names and not self._crew.has_time():
            return False
        self._frame = frame
        self._names.append(name)
        self._size += size
        self._promised += size
        if self._size >= _LONG:
            self.flush()
        return True

    def flush(self) -> None:
        """Hands over the long files; what nobody has time for after all is taken here."""
        frame, names, size = self._frame, self._names, self._size
        self._frame, self._names, self._size = None, [], 0
        if frame is None:
            return
        weight = size + len(names) * OVERHEAD
        if not self._ask(frame, names, weight, size, size):
            self._promised -= size
            self._take(frame, names)

    def _ask(
        self, frame: Frame, names: list[bytes], weight: int, limit: int, promised: int
    ) -> bool:
        request = (_path(frame), _identity(frame.before), names, limit)
        frame.waiting += 1
        if self._crew.offer((frame, names, promised), request, weight):
            return True
        frame.waiting -= 1
        return False

    def settle(self) -> None:
        """Returns when all that was given away is done."""
        self._crew.settle()

    def _done(self, piece: tuple[Frame, list[bytes], int], answer: Any) -> None:
        frame, names, promised = piece
        self._promised -= promised
        if answer is None:
            self._take(frame, names)
        else:
            total, entries, handed = answer
            self._taking.taker.adopt(handed)
            self._taking.count(total, frame)
            frame.entries.update(entries)
        self._taking.part_done(frame)

    def _take(self, frame: Frame, names: list[bytes]) -> None:
        take_part(self._taking, frame, self._root, _path(frame), _identity(frame.before), names)

    def close(self) -> None:
        """Ends the processes."""
        self._crew.close()


def take_part(
    taking: Taking,
    frame: Frame,
    root: int,
    path: tuple[bytes, ...],
    identity: Identity,
    names: list[bytes],
) -> None:
    """Takes some files of the directory at `path` below `root`; raises what the walk would."""
    try:
        fd = reopen(root, path)
    except OSError as error:
        raise taking.changed(frame) from error
    try:
        if _identity(os.fstat(fd)) != identity:
            raise taking.changed(frame)
        taking.files(frame, fd, names)
        if _identity(os.fstat(fd)) != identity:  # the walk may have looked before
            raise taking.changed(frame)
    finally:
        os.close(fd)


def _identity(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns


def _path(frame: Frame) -> tuple[bytes, ...]:
    path: list[bytes] = []
    here: Frame | None = frame
    while here is not None and here.above is not None:
        path.append(here.name)
        here = here.above
    return tuple(reversed(path))
