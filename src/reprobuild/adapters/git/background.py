"""git processes that run at the same time."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Generic, Self, TypeVar

from reprobuild.adapters.git.plumbing import failure

_MOST = 4
"""Processes at once, however many cores there are: the work is small."""

Job = TypeVar("Job")


def cores() -> int:
    """How many processes are worth having at once."""
    return min(_MOST, len(os.sched_getaffinity(0)))


def shared_out(weights: Sequence[int], most: int) -> list[list[int]]:
    """Indices of `weights` in up to `most` groups of about the same sum, none of them empty."""
    groups: list[list[int]] = [[] for _ in range(min(most, len(weights)))]
    sums = [0] * len(groups)
    for index in sorted(range(len(weights)), key=lambda i: -weights[i]):
        least = sums.index(min(sums))
        groups[least].append(index)
        sums[least] += weights[index] + 1
    return [sorted(group) for group in groups if group]


class Crew(Generic[Job]):
    """git processes with small outputs, each with what it is for; a context manager.

    Those that are still at work when the block ends are killed.
    """

    def __init__(self, env: Mapping[str, str], cwd: Path) -> None:
        self._env, self._cwd = dict(env), cwd
        self._poll = select.poll()
        self._at_work: dict[int, tuple[subprocess.Popen[bytes], list[bytes], Job]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        for process, _chunks, _job in self._at_work.values():
            process.kill()
            process.communicate()
        self._at_work.clear()

    def start(self, argv: Sequence[str], job: Job) -> None:
        """Runs `git argv…`; what it complains of is dropped."""
        process = subprocess.Popen(
            ["git", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._env,
            cwd=self._cwd,
        )
        assert process.stdout is not None
        self._at_work[process.stdout.fileno()] = (process, [], job)
        self._poll.register(process.stdout.fileno(), select.POLLIN)

    def ended(self) -> Iterator[tuple[Job, int, bytes]]:
        """What was started, as it ends: what it was for, its status, its output.

        More may be started in between.
        """
        while self._at_work:
            for descriptor, _ in self._poll.poll():
                process, chunks, job = self._at_work[descriptor]
                chunk = os.read(descriptor, 1 << 16)
                if chunk:
                    chunks.append(chunk)
                    continue
                self._poll.unregister(descriptor)
                del self._at_work[descriptor]
                assert process.stdout is not None
                process.stdout.close()
                yield job, process.wait(), b"".join(chunks)


@contextmanager
def aside(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, directory: Path
) -> Iterator[Callable[[], IO[bytes]]]:
    """Runs `git argv…` meanwhile, its output kept in a file of `directory` that has no name.

    What is yielded waits for its end, raises as `plumbing.run` where it failed, and gives the
    output from its start.
    """
    with (
        tempfile.TemporaryFile(dir=directory) as out,
        tempfile.TemporaryFile(dir=directory) as complaints,
    ):
        process = subprocess.Popen(
            ["git", *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=complaints,
            env=dict(env),
            cwd=cwd,
        )

        def result() -> IO[bytes]:
            status = process.wait()
            if status:
                complaints.seek(0)
                raise failure(argv, status, complaints.read()[-4000:])
            out.seek(0)
            return out

        try:
            yield result
        finally:
            process.kill()
            process.wait()
