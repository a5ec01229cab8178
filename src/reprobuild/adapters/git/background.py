"""git processes that run at the same time."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from reprobuild.adapters.git.plumbing import failure

_MOST = 4
"""Processes at once, however many cores there are: the work is small."""


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
