"""Two ways to do the same work, in turns, in one run: medians, the ratio, and its spread.

Every way is a process of its own, so that start-up, memory and what the kernel does on its behalf
are in the figures of both. A figure is wall-clock time; the processor time (user and system, the
process with all its children) stands beside it, because it moves less while a machine is busy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import reprobuild

MB = 10**6


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run took: seconds of wall clock, of processor time, and peak memory in MiB."""

    wall: float
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work. `prepare` is not timed, and makes ready for `argv` every time."""

    argv: Sequence[str]
    prepare: Callable[[], object] = lambda: None
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. `wanted` is the largest ratio of ours to the peer's that is good."""

    work: str
    size: str
    peer: str
    ours: Sequence[Taken]
    theirs: Sequence[Taken]
    wanted: float
    scale: float = 1.0
    """What the peer's time is multiplied with, where it does a part of the work."""

    def ratios(self) -> tuple[float, float, float]:
        """Median, and the middle half, of the ratios of neighbours in time."""
        pairs = [
            a.wall / (b.wall * self.scale) for a, b in zip(self.ours, self.theirs, strict=True)
        ]
        return _middle(pairs)

    def good(self) -> bool:
        """Whether the ratio is what was wanted."""
        return self.ratios()[0] <= self.wanted

    def line(self) -> str:
        """For people."""
        middle, low, high = self.ratios()
        busy = statistics.median(t.cpu for t in self.ours) / (
            self.scale * statistics.median(t.cpu for t in self.theirs) or 1e-9
        )
        memory = max(t.memory for t in self.ours)
        return (
            f"{self.work:<34} {self.size:>9} {self.peer:<22}"
            f" {_seconds(self.ours):>9} {_seconds(self.theirs, self.scale):>9}"
            f" {middle:7.3f} ({low:.3f}–{high:.3f})  cpu {busy:6.3f}"
            f"  wanted {self.wanted:<5g} {'yes' if self.good() else 'NO '}"
            f" {memory:6.0f} MiB"
        )


HEAD = (
    f"{'work':<34} {'size':>9} {'against':<22} {'ours':>9} {'theirs':>9} {'ratio':>7} (quartiles)"
)


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def _seconds(taken: Sequence[Taken], scale: float = 1.0) -> str:
    value = statistics.median(t.wall for t in taken) * scale
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def once(way: Way) -> Taken:
    """Runs a way; it must succeed."""
    way.prepare()
    os.sync()  # what came before is written back before the clock starts
    begin = time.perf_counter()
    process = subprocess.Popen(
        list(way.argv), env=way.env, cwd=way.cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(way.argv)} failed:\n{said.decode(errors='replace')[-2000:]}")
    return Taken(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def contest(
    work: str,
    size: str,
    peer: str,
    ours: Way,
    theirs: Way,
    *,
    wanted: float,
    rounds: int = 5,
    scale: float = 1.0,
    warm: bool = True,
) -> Row:
    """Both in turns, `rounds` times, after one round that only warms the page cache."""
    if warm:
        once(theirs)
        once(ours)
    mine: list[Taken] = []
    other: list[Taken] = []
    for _ in range(rounds):
        other.append(once(theirs))
        mine.append(once(ours))
    row = Row(work, size, peer, mine, other, wanted, scale)
    print(row.line(), flush=True)
    return row


def python(code: str, *words: object) -> list[str]:
    """The command line of a few lines of Python, given `words` as sys.argv[1:]."""
    return [sys.executable, "-c", code, *map(str, words)]


def tool(*words: object) -> list[str]:
    """The command line of this tool."""
    return [str(Path(sys.executable).with_name("reprobuild")), *map(str, words)]


def clear(path: Path) -> None:
    """Removes a directory with all below it, read-only or not."""
    if os.path.lexists(path):
        subprocess.run(["chmod", "-R", "u+w", str(path)], check=False)
        shutil.rmtree(path)


def set_aside(path: Path) -> None:
    """Frees the name of a directory without removing it; the scratch directory's end does that.

    For what is about to be measured making new files: ext4 walks past every inode that was given
    up in the last half minute, one by one, for each new one.
    """
    if os.path.lexists(path):
        path.rename(Path(tempfile.mkdtemp(prefix="aside-", dir=path.parent)) / path.name)


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards.

    Open to all, as directories are: below one that is closed to a build's user, root has each
    input mounted by mount(8) first.
    """
    path = Path(tempfile.mkdtemp(prefix="reprobuild-bench-"))
    path.chmod(0o755)
    os.environ.pop("REPROBUILD_STORE", None)
    try:
        yield path
    finally:
        clear(path)


Suite = Mapping[str, tuple[Callable[[Path, int, int], Iterable[Row]], Sequence[int]]]
"""By name: what measures in an empty directory at a size, over some rounds; and the sizes."""


def compiled() -> None:
    """Has our modules' byte code written, as installers do: a checkout may lack it."""
    package = Path(reprobuild.__file__).parent
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(package)], check=False)


def rows(suite: Suite, names: Sequence[str], quick: bool, rounds: int) -> Iterator[Row]:
    """The measurements, sizes ascending; with `quick` the smallest alone."""
    compiled()
    for name, (work, sizes) in suite.items():
        if names and name not in names:
            continue
        for size in sizes[: 1 if quick else None]:
            with scratch() as home:
                yield from work(home, size, rounds)


def command(doc: str | None, suite: Suite) -> int:
    """A benchmark's own command line; exits 1 when a ratio is not what was wanted."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small sizes alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("names", nargs="*", help=", ".join(suite))
    given = parser.parse_args()
    unknown = set(given.names) - set(suite)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    print(HEAD)
    done = list(rows(suite, given.names, given.quick, given.rounds))
    return 0 if all(row.good() for row in done) else 1
