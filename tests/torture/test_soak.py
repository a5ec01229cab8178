"""Very many actions through one store, in one process: nothing grows that should not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from torture.conftest import Tally

TESTS = Path(__file__).resolve().parents[1]
SAMPLE = 150

SOAK = """
import gc, json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fakes.world import glue, step
from reprobuild.adapters.store.store import LocalStore
from support.localworld import realize, text_source

place, notes, wanted = Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
ROUND, KEPT = 50, 20

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def graph(number):
    sources = [text_source(f"s{number}", f"text {number}\\n" * 3)]
    steps = [step(f"b{n}", *sources, word=f"{number}.{n}") for n in range(ROUND)]
    return [*sources, *steps, glue("top", *steps)]

samples, done, number, collected = [], 0, 0, 0
with LocalStore.open(place, create=True) as store:
    while done < wanted:
        made = realize(store, graph(number), notes, root=f"root {number % KEPT}")
        done += made.built + made.fetched
        number += 1
        if number % KEPT == 0 or done >= wanted:
            collected += store.gc(wait=True).bytes
            samples.append([done, resident(), descriptors()])
print(json.dumps({"samples": samples, "collected": collected}))
"""


def test_memory_stays_flat(
    memory: Path, full: bool, tally: Tally, pytestconfig: pytest.Config
) -> None:
    wanted = int(pytestconfig.getoption("--actions")) if full else SAMPLE
    place = memory / "store"
    words = [sys.executable, "-c", SOAK, str(TESTS), str(place), str(memory / "notes"), str(wanted)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    samples = found["samples"]
    actions, last, descriptors = samples[-1]
    assert (actions >= wanted and found["collected"] > 0) or not full
    _, settled, first_descriptors = samples[len(samples) // 5]
    assert descriptors <= first_descriptors + 2
    assert last - settled < 8 * 2**20, samples  # bytes
    with LocalStore.open(place) as store:
        assert store.verify().problems == []
    tally("a soak in one process", "actions", actions)
    tally("a soak in one process", "MiB of memory at a fifth of it", settled // 2**20)
    tally("a soak in one process", "MiB at its end", last // 2**20)
