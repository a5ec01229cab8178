"""`git merge-tree --stdin`, kept for one merge after the other (git-merge-tree(1), "INPUT FORMAT").

A merge of two large files costs a third more in a process of its own: what was unpacked of their
history is unpacked again, and memory is fetched again.

git before 2.41 does not hand over an answer before its output buffer is full or its input ends. So
each question is followed by a merge that is known to collide, on paths that are long enough to
push the answer out. Should a C library buffer more than any known one, nothing is lost but time:
after a while of silence the input is closed, and the next question starts another process.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from reprobuild.adapters.git.mergetree import UNPACKED, parse_merge
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.adapters.git.treewrite import rewritten
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import MergeOutcome

_PATIENCE = 20.0
"""Seconds of silence after which input is closed."""
_BUFFER = 3 << 12
"""Bytes of answers that push out what is before them: glibc buffers 8192 at most, or a block."""
_LONG = 3000
"""Bytes of a path, well below PATH_MAX."""

Job = TypeVar("Job")


class Mergers(Generic[Job]):
    """git processes that merge at the same time, each for one job; a context manager.

    What is still at work when the block ends is killed.
    """

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._poll = select.poll()
        self._at_work: dict[int, tuple[Merger, Job]] = {}
        self._all: list[Merger] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        for merger in self._all:
            merger.end()

    def merger(self) -> Merger:
        """One more process."""
        merger = Merger(self._scratch)
        self._all.append(merger)
        return merger

    def ask(self, merger: Merger, ours: GitOid, theirs: GitOid, job: Job, *, last: bool) -> None:
        """Asks a process for one merge at a time; `last` when there is nothing more for it."""
        descriptor = merger.ask(ours, theirs, last=last)
        self._at_work[descriptor] = (merger, job)
        self._poll.register(descriptor, select.POLLIN)

    def answers(self) -> Iterator[tuple[Job, MergeOutcome | None]]:
        """What came of each merge, as it comes; None where git failed.

        Conflicts have no messages. More may be asked in between.
        """
        while self._at_work:
            ready = self._poll.poll(_PATIENCE * 1000)
            if not ready:
                for merger, _ in self._at_work.values():
                    merger.close_input()
            for descriptor, _ in ready:
                merger, job = self._at_work[descriptor]
                answer = merger.take()
                if answer is not None:
                    self._poll.unregister(descriptor)
                    del self._at_work[descriptor]
                    merger.tidy()
                    yield job, parse_merge(answer) if answer else None


class Merger:
    """One process, which is started when it is asked and there is none."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._buffer = b""
        self._pushes = 0  # answers that mean nothing and are still to come

    def ask(self, ours: GitOid, theirs: GitOid, *, last: bool) -> int:
        """Asks for a merge; the descriptor from which the answer comes."""
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        lines = f"{ours} {theirs}\n"
        if not last:
            block = os.fstat(process.stdout.fileno()).st_blksize
            lines += _push(self._scratch, max(block + block // 2, _BUFFER))
        with suppress(BrokenPipeError):  # then its output ends as well
            process.stdin.write(lines.encode())
            process.stdin.flush()
        if last:
            self.close_input()
        return process.stdout.fileno()

    def _start(self) -> subprocess.Popen[bytes]:
        self._buffer, self._pushes, self._ended = b"", 0, False
        return subprocess.Popen(
            ["git", *UNPACKED, "merge-tree", "--stdin", "--no-messages"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._scratch.roomy,
            cwd=self._scratch.work_tree,
        )

    def take(self) -> bytes | None:
        """Reads; the answer once it is whole (empty where git ended without one), else None."""
        assert self._process is not None
        assert self._process.stdout is not None
        chunk = os.read(self._process.stdout.fileno(), 1 << 16)
        self._buffer += chunk
        while (end := self._buffer.find(b"\0\0")) >= 0:
            record, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
            if self._pushes:
                self._pushes -= 1
                continue
            self._pushes += 1
            return record.partition(b"\0")[2] + b"\0\0"
        if not chunk:
            self._ended = True
            return b""
        return None

    def close_input(self) -> None:
        """Says that nothing more is asked, so that all that is known is said."""
        if self._process is not None and self._process.stdin is not None:
            self._ended = True
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def tidy(self) -> None:
        """Lets go of a process that can be asked no more."""
        if self._ended:
            self.end()

    def end(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait()


def _push(scratch: Scratch, size: int) -> str:
    """The question whose answer has `size` bytes or more: files that one side took away and the
    other changed, which collide whatever their attributes are.
    """
    one, other = (scratch.write_object("blob", text) for text in (b"1\n", b"2\n"))
    names = [b"%d" % n + b"_" * _LONG for n in range(size // (2 * _LONG) + 1)]  # on two sides each
    made: list[GitOid] = []
    for files in (dict.fromkeys(names, one), {b"kept": one}, dict.fromkeys(names, other)):
        sides = {name: (0o100644, blob) for name, blob in files.items()}
        tree = rewritten(scratch.reader, scratch.write_object, None, sides)
        assert tree is not None
        made.append(scratch.write_commit(tree, made[:1], "one side"))
    return f"{made[1]} {made[2]}\n"
