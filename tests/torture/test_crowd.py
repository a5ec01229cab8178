"""Many processes at once: they realize, collect, verify and import in one store, and some are
killed, with whatever lock they hold. Every action is built once, nothing in use is collected."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from reprobuild.adapters.store.store import LocalStore
from support.bundles import make_release, write
from torture.conftest import Tally

TESTS = Path(__file__).resolve().parents[1]
PROCESSES, SAMPLE_PROCESSES = 16, 5
SECONDS, SAMPLE_SECONDS = 240, 4

MEMBER = """
import json, os, random, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fakes.world import glue, step
from reprobuild.adapters.store.store import LocalStore
from reprobuild.errors import ReprobuildError
from support.bundles import bring
from support.localworld import note, realize, text_source

place, notes = map(Path, sys.argv[2:4])
seed, seconds = int(sys.argv[4]), float(sys.argv[5])
dice = random.Random(seed)
ends = time.monotonic() + seconds

def count(what):
    note(notes.parent / "counts", what)  # at once: most members are killed

def graph(number):
    # Neighbours share half of their steps.
    sources = [text_source(f"s{number + n}", f"text {number + n}\\n" * 5) for n in range(2)]
    steps = [step(f"b{number + n}", source) for n, source in enumerate(sources)]
    return [*sources, *steps, glue(f"g{number}", *steps)]

while time.monotonic() < ends:
    what = dice.choice(["realize"] * 6 + ["collect", "verify", "import", "repair"])
    with LocalStore.open(place, create=True) as store:
        try:
            if what == "realize":
                number = dice.randrange(40)
                made = realize(store, graph(number), notes, root=f"root {number}", seconds=0.002)
                tree = next(iter(made.chosen.values())).outputs["out"]
                assert store.contains(tree)
                for drv, record in made.chosen.items():
                    for tree in record.outputs.values():
                        names = [n for n, _ in store.tree(tree)]
                        assert names
            elif what == "collect":
                store.gc(wait=dice.random() < 0.3)
            elif what == "verify":
                with store.lease():
                    problems = store.verify(jobs=1).problems
                # what others are writing just now may be seen half-way; damage may not
                assert not [p for p in problems if p.kind == "damaged"], problems
            elif what == "repair":
                assert not store.repair(jobs=1).lost
            else:
                bring(notes.parent / "bundle", store)
            count(what)
        except ReprobuildError as error:
            if error.code != "E-STORE-BUSY":
                raise
            count("busy")
        if dice.random() < 0.02:
            store.remove_root(f"root {dice.randrange(40)}")
"""


class Crowd:
    """The processes, each of which is started again when it was killed."""

    def __init__(self, home: Path, seconds: float) -> None:
        self._home = home
        self._ends = time.monotonic() + seconds
        self._seed = 0
        self.running: list[subprocess.Popen[str]] = []
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        left = max(0.5, self._ends - time.monotonic())
        self._seed += 1
        self.running.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    MEMBER,
                    str(TESTS),
                    str(self._home / "store"),
                    str(self._home / "notes"),
                    str(self._seed),
                    str(left),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        )

    def kill_one(self, dice: random.Random) -> None:
        """Whoever holds the store's lock alone, if somebody does; else anyone."""
        holders = set(lock_holders(self._home / "store" / "locks" / "store"))
        chosen = [p for p in self.running if p.pid in holders] or self.running
        process = dice.choice(chosen)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            self.counts["killed"] += 1
            self.counts["of them holding the store's lock"] += process.pid in holders
        self.reap(process)
        self.begin()

    def reap(self, process: subprocess.Popen[str], patience: float = 300) -> None:
        """Fails when it failed, or does not end: a deadlock."""
        _, err = process.communicate(timeout=patience)
        self.running.remove(process)
        assert process.returncode in (0, -signal.SIGKILL), err


def lock_holders(path: Path) -> list[int]:
    """Processes that hold a flock on a file, as /proc/locks has them."""
    try:
        inode = os.stat(path).st_ino
    except FileNotFoundError:
        return []
    lines = Path("/proc/locks").read_text().splitlines()
    return [
        int(fields[4])
        for line in lines
        if "->" not in line
        and (fields := line.split())[1] == "FLOCK"
        and fields[5].endswith(f":{inode}")
    ]


def test_a_crowd(memory: Path, full: bool, tally: Tally) -> None:
    seconds = SECONDS if full else SAMPLE_SECONDS
    release = make_release(memory / "origin")
    write(memory / "bundle", release.plan())
    release.store.close()
    crowd = Crowd(memory, seconds)
    for _ in range(PROCESSES if full else SAMPLE_PROCESSES):
        crowd.begin()
    dice = random.Random(1)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(0.25 + dice.random() / 2)
        crowd.kill_one(dice)
        with LocalStore.open(memory / "store", create=True) as store:
            damaged = [p for p in store.verify(jobs=1).problems if p.kind == "damaged"]
        assert damaged == []
    for process in list(crowd.running):
        crowd.reap(process)
    with LocalStore.open(memory / "store") as store:
        store.gc()
        assert store.verify(jobs=1).problems == []
        for name in store.roots():
            assert store.root(name) is not None
    counts = crowd.counts + Counter((memory / "counts").read_text().split())
    assert counts["realize"] > 0
    if full:
        missing = {"collect", "verify", "repair", "import", "busy"} - set(counts)
        assert not missing
    columns = {
        "realize": "realized",
        "collect": "collected",
        "verify": "verified",
        "repair": "repaired",
        "import": "imported",
        "busy": "told that the store is in use",
    }
    row = f"{PROCESSES if full else SAMPLE_PROCESSES} processes for {seconds} s"
    for key, column in columns.items():
        tally(row, column, counts[key])
    tally(row, "killed", counts["killed"])
    tally(
        row, "of these while holding the store's lock", counts["of them holding the store's lock"]
    )


BUILD_ONCE = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from reprobuild.adapters.store.store import LocalStore
from fakes.world import glue, step
from support.localworld import realize, text_source
with LocalStore.open(Path(sys.argv[2]), create=True) as store:
    sources = [text_source(f"s{n}", f"text {n}\\n") for n in range(8)]
    steps = [step(f"b{n}", source) for n, source in enumerate(sources)]
    top = glue("top", *steps)
    print("ready", flush=True)
    sys.stdin.read(1)
    realize(store, [*sources, *steps, top], Path(sys.argv[3]), seconds=0.02)
"""


def test_every_action_is_built_once(memory: Path, full: bool, tally: Tally) -> None:
    """All begin at the same moment, over the same graph, with no collection between."""
    members, rounds = (16, 10) if full else (4, 1)
    for number in range(rounds):
        notes = memory / f"notes{number}"
        place = str(memory / f"store{number}")
        words = [sys.executable, "-c", BUILD_ONCE, str(TESTS), place, str(notes)]
        processes = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(members)
        ]
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("x")
            process.stdin.flush()
        for process in processes:
            assert process.wait(120) == 0
            process.communicate()
        assert sorted(notes.read_text().split()) == [f"b{n}" for n in range(8)]
        with LocalStore.open(Path(place)) as store:
            assert store.verify(jobs=1).problems == []
    tally("actions wanted by many processes at once", "built once", 8 * rounds)
