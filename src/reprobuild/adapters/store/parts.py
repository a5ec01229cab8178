"""The short files of a large tree, given in parts to other processes (process.py).

A part is some files of one directory. What comes back are their entries, or that it could not be
done: then the walk does it itself, and finds the same or says what is wrong. The process opens the
directory from the walk's own start, link by link, and it must be the very one that the walk saw.
"""

from __future__ import annotations

import os
from collections import deque

from reprobuild.adapters.store.opening import reopen
from reprobuild.adapters.store.process import GoneError, Process, spare_cores
from reprobuild.adapters.store.taking import Frame, Others, Taking

SIZE = 128
"""Files in a part."""
_OUT = 2
"""Parts that a process has at once: one in work, one to follow."""
_WORTH = 1500
"""Files that each process has been given when another one is worth its start."""
_MOST = 7

Identity = tuple[int, int, int, int]


class Parts(Others):
    """What a walk has out in other processes."""

    def __init__(self, taking: Taking, root: int) -> None:
        self._taking = taking
        self._root = root
        self._left = min(spare_cores(), _MOST)
        self._processes: list[tuple[Process, deque[tuple[Frame, list[bytes]]]]] = []
        self._given = 0

    def offer(self, frame: Frame, names: list[bytes]) -> int:
        """Gives away files of a directory that others have time for; how many of the first."""
        if self._left and self._given >= _WORTH * len(self._processes):
            self._start()
        given = 0
        for process, out in list(self._processes):
            try:
                self._collect(process, out, wait=False)
                while len(out) < _OUT and given < len(names):
                    part = names[given : given + SIZE]
                    given += len(part)
                    frame.waiting += 1
                    out.append((frame, part))
                    process.ask((_path(frame), _identity(frame.before), part, self._taking.left))
            except GoneError:
                self._lost(process, out)
        self._given += given
        return given

    def settle(self) -> None:
        """Returns when all that was given away is done."""
        for process, out in list(self._processes):
            try:
                while out:
                    self._collect(process, out, wait=True)
            except GoneError:
                self._lost(process, out)

    def _start(self) -> None:
        self._left -= 1
        try:
            process = Process("take", self._taking.taker.apart(), self._root)
        except (OSError, GoneError):
            self._left = 0
        else:
            self._processes.append((process, deque()))

    def _collect(
        self, process: Process, out: deque[tuple[Frame, list[bytes]]], *, wait: bool
    ) -> None:
        for answer in process.answers(wait=wait):
            frame, names = out.popleft()
            if answer is None:
                self._redo(frame, names)
            else:
                total, entries, kept = answer
                self._taking.taker.adopt(kept)
                self._taking.count(total, frame)
                frame.entries.update(entries)
            self._taking.part_done(frame)

    def _lost(self, process: Process, out: deque[tuple[Frame, list[bytes]]]) -> None:
        self._processes = [pair for pair in self._processes if pair[0] is not process]
        self._left = 0
        process.close()
        while out:
            frame, names = out.popleft()
            self._redo(frame, names)
            self._taking.part_done(frame)

    def _redo(self, frame: Frame, names: list[bytes]) -> None:
        take_part(self._taking, frame, self._root, _path(frame), _identity(frame.before), names)

    def close(self) -> None:
        """Ends the processes."""
        for process, _ in self._processes:
            process.close()
        self._processes.clear()


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
