"""kill -9 at random moments of the real command: realize, gc, verify, repair, export and import."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter

import pytest

from reprobuild.adapters.store.store import LocalStore
from support.demo import Demo, needs_sandbox
from support.processes import running
from torture.conftest import Tally

pytestmark = needs_sandbox

SAMPLE = 4
PATIENCE = 900

WORK = (
    ("realize",),
    ("realize", "--from-source"),
    ("realize", "--check=closure"),
    ("store", "gc"),
    ("store", "gc", "--free", "1K"),
    ("store", "verify"),
    ("store", "repair"),
    ("import", "bundle"),
    ("export", "demo", "-o", "again", "--sources"),
)


def shake(demo: Demo, source: random.Random) -> None:
    """Another text in one component, so that there is something to build, and to collect."""
    demo.component(
        "notes", f"cat /inputs/source/notes.txt > $out/n; echo {source.random()} >> $out/n"
    )


def kill_at(demo: Demo, words: tuple[str, ...], after: float) -> bool:
    """Starts a call and kills it after so many seconds; whether it was still at it."""
    process = subprocess.Popen(
        demo.argv(*words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=demo.environment(),
        cwd=demo.path,
    )
    time.sleep(after)
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive


class Lengths:
    """How long each call takes: found out the first time that it is asked."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._found: dict[tuple[str, ...], float] = {}

    def of(self, words: tuple[str, ...]) -> float:
        if words not in self._found:
            started = time.monotonic()
            self._demo.run(*words, status=None, cwd=self._demo.path, timeout=PATIENCE)
            self._found[words] = time.monotonic() - started
            (self._demo.path / "again").unlink(missing_ok=True)
        return self._found[words]


def test_the_command_is_killed_at_random(
    locked: Demo, full: bool, tally: Tally, pytestconfig: pytest.Config
) -> None:
    kills = int(pytestconfig.getoption("--kills")) if full else SAMPLE
    source = random.Random(int(pytestconfig.getoption("--seed", default="20260101")))
    locked.run("realize")
    locked.run("export", "demo", "-o", "bundle", "--sources", cwd=locked.path, timeout=PATIENCE)
    locked.run("key", "generate")
    took = Lengths(locked)
    hits: Counter[str] = Counter()
    for number in range(kills):
        words = WORK[number % len(WORK)] if full else source.choice(WORK)
        if words[0] == "realize":
            shake(locked, source)
        if kill_at(locked, words, source.random() * took.of(words)):
            hits[" ".join(words[:2]) if words[0] == "store" else words[0]] += 1
        with LocalStore.open(locked.store) as store:
            problems = store.verify(jobs=1).problems
            assert problems == [], (number, words, problems)
        assert not (locked.path / "again").exists() or words[0] == "export"
        (locked.path / "again").unlink(missing_ok=True)
        if number % 20 == 19 or number == kills - 1:
            completes(locked)
    assert running(str(locked.store)) == []
    assert sum(hits.values()) >= kills // 4
    for what, count in sorted(hits.items()):
        tally(f"`{what}`", "killed at a random moment", count)


def completes(demo: Demo) -> None:
    """The rerun ends well, builds nothing twice, and collection leaves nothing of the dead."""
    demo.run("realize")
    answer = demo.json("realize")
    assert answer["counts"]["built"] == 0
    again = demo.json("realize", "demo.program", "demo.notes")
    assert again["counts"]["built"] == 0  # what is on record is not built again
    demo.run("store", "gc", "--wait")
    assert os.listdir(demo.store / "build") == []
    assert [n for n in os.listdir(demo.store / "materialised") if n.startswith(".")] == []
    demo.verify()


@pytest.mark.parametrize("what", ["store", "action"])
def test_a_holder_of_a_lock_is_killed(locked: Demo, what: str, tally: Tally) -> None:
    """Others wait for it, and go on when it is gone: no lock outlives its owner."""
    sleep = f"sleep 9{os.getpid()}"  # of this test alone, whatever else runs
    locked.component("notes", f"{sleep}; echo x > $out/x")
    first = locked.start("realize")
    try:
        deadline = time.monotonic() + 60
        while not running(sleep):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        other = (
            locked.start("store", "gc", "--wait")
            if what == "store"
            else locked.start("realize", "demo.notes")
        )
        busy = locked.run("--json", "store", "gc", status=None)
        assert busy.error["code"] == "E-STORE-BUSY"
        time.sleep(0.5)
        assert other.poll() is None  # it waits
        if what == "action":
            # which then would build the same, and sleep: what it runs must end with the test
            first.kill()
            first.wait(60)
            deadline = time.monotonic() + 60
            while len(running(sleep)) < 1 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert other.poll() is None and running(sleep)
            other.terminate()
            assert other.wait(60) == 130
        else:
            first.kill()
            first.wait(60)
            assert other.wait(60) == 0
    finally:
        first.kill()
        first.communicate()
    locked.verify()
    tally("locks", "holders killed while others waited", 1)
