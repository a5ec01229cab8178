"""What a tree that is materialised already adds to a sandbox, against `cp -al` of it.

Measured in this process, since starting Python is no part of it. Three rows:

* show a tree – asking the store, and the sandbox with it less the sandbox without it;
* … first in a process – the same, of a store that was opened just now, which has not looked at what
  an earlier process made: it does so meanwhile;
* a build of 0.5 s over it, first in a process – how much longer such a build takes until its result
  can be believed, the look included.
"""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import graphs
from harness import Row, Taken, Way, once, set_aside

from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Hints, InputContent, Isolation
from reprobuild.core.digest import Digest
from reprobuild.engine.loans import Loans
from reprobuild.ports import BuildRequest, Mount, Wish

WANTED = 0.01
NEVER = threading.Event()
NOTHING = ("/bin/sh", "-c", ":")
BUILD = ("/bin/busybox", "sleep", "0.5")
SAMPLES = 40
"""Sandboxes with and without the tree for one figure: their times differ by more than a mount."""


class _Sandboxes:
    """Runs commands with a shell for a root, and more mounts if wanted."""

    def __init__(self, home: Path, shell: Path) -> None:
        self._home = home
        self._shell = shell
        (home / "run").mkdir()
        self._executor = BubblewrapExecutor(Isolation.FULL, home / "run")
        self._number = 0

    def run(self, argv: tuple[str, ...], *mounts: Mount, stop: Wish = NEVER) -> float:
        """How long it took, in seconds."""
        self._number += 1
        work = self._home / f"work{self._number}"
        (work / "out/out").mkdir(parents=True)
        request = BuildRequest("show", argv, {}, "/build", (Mount("/", self._shell), *mounts),
                               ("out",), work, Hints())  # fmt: skip
        begin = time.perf_counter()
        with Path(os.devnull).open("wb") as log:
            outcome = self._executor.run(request, log, stop)
        taken = time.perf_counter() - begin
        assert not outcome.reason, outcome
        self._executor.discard(work)
        return taken


def showings(home: Path, content: Path, size: str, rounds: int) -> Iterator[Row]:
    """The rows for the directory `content`."""
    tree, shell = _made(home, content)
    sandboxes = _Sandboxes(home, shell)
    sandboxes.run(NOTHING)
    copy = home / "copy"
    linking = Way(["cp", "-al", str(content), str(copy)], prepare=lambda: set_aside(copy))
    theirs = [once(linking) for _ in range(rounds + 1)][1:]
    for work, measure in (
        ("show a tree", partial(_later, home, tree, sandboxes)),
        ("show a tree, first in a process", partial(_first, home, tree, sandboxes, NOTHING)),
        ("a build of 0.5 s over it, the same", partial(_first, home, tree, sandboxes, BUILD)),
    ):
        taken = [Taken(max(0.0, measure()), 0, 0) for _ in range(rounds)]
        row = Row(work, size, "cp -al", taken, theirs, WANTED)
        print(row.line(), flush=True)
        yield row


def _made(home: Path, content: Path) -> tuple[Digest, Path]:
    """A store that has laid both out, and what it needs to know them again; the root's place."""
    root = home / "root"
    (root / "bin").mkdir(parents=True)
    for name in ("sh", "busybox"):
        shutil.copyfile(graphs.shell(), root / "bin" / name)
        (root / "bin" / name).chmod(0o755)
    with LocalStore.open(home / "store", create=True) as store:
        tree, base = store.capture(content), store.capture(root)
        store.barrier()
        store.materialise(tree)
        shell = store.materialise(base)
        time.sleep(2.1)  # from then on what was made is known by its inodes' times
    with LocalStore.open(home / "store") as store:
        store.materialise(tree)
    return tree, shell


def _later(home: Path, tree: Digest, sandboxes: _Sandboxes) -> float:
    """Seconds, where this process has looked at it before."""
    with LocalStore.open(home / "store") as store:
        path = store.materialise(tree)
        asked = _per_call(lambda: store.lend(tree))
    shown = partial(sandboxes.run, NOTHING, Mount("/tree", path))
    return asked + _longer(partial(sandboxes.run, NOTHING), shown, SAMPLES)


def _first(home: Path, tree: Digest, sandboxes: _Sandboxes, argv: tuple[str, ...]) -> float:
    """Seconds, where nothing has been looked at; over a build, until the look is over too."""

    def shown() -> float:
        with LocalStore.open(home / "store") as store:
            begin = time.perf_counter()
            loans = Loans(store, NEVER)
            path = loans.path(InputContent(tree))
            asked = time.perf_counter() - begin
            with loans.settled("show"):
                taken = sandboxes.run(argv, Mount("/tree", path), stop=loans)
                begin = time.perf_counter()
            waited = 0.0 if argv is NOTHING else time.perf_counter() - begin
        return asked + taken + waited

    samples = SAMPLES if argv is NOTHING else SAMPLES // 4
    return _longer(partial(sandboxes.run, argv), shown, samples)


def _longer(without: Callable[[], float], shown: Callable[[], float], samples: int) -> float:
    """By how much, each being the first of a pair half of the time."""
    more = []
    for number in range(samples):
        if number % 2:
            less, taken = without(), shown()
        else:
            taken, less = shown(), without()
        more.append(taken - less)
    return statistics.median(more)


def _per_call(work: Callable[[], object], times: int = 200) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begin) / times
