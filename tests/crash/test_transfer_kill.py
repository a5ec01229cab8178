"""kill -9 at any moment of export or import: the same call again ends right."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle import format as layout
from support.bundles import Release, bring, make_release, write

PROJECT = Path(__file__).resolve().parents[2]

IMPORT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from reprobuild.core.bundle import format as layout
from reprobuild.engine import transfer_import
layout.PIECE = 20_000
transfer_import.BATCH_BYTES = 100_000
from reprobuild.adapters.store.store import LocalStore
from support.bundles import bring
with LocalStore.open(Path(sys.argv[2]), create=True) as store:
    print("ready", flush=True)
    sys.stdin.read(1)
    bring(Path(sys.argv[3]), store)
    print("done", flush=True)
"""

BIG = {f"f{n}": random.Random(n).randbytes(9_000) for n in range(120)}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the programs: many pieces, so that a kill comes between two of them."""
    monkeypatch.setattr(layout, "PIECE", 20_000)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    made = make_release(tmp_path_factory.mktemp("big") / "store", result=BIG)
    yield made
    made.store.close()


class Killer:
    """Runs a program again and again, and kills it at a random moment of its work.

    How long the work takes is learnt on the way: a machine that others use changes its mind.
    """

    def __init__(self, program: str, seed: int) -> None:
        self._program, self._random = program, random.Random(seed)
        self._length = 0.0
        self.hits = 0
        """How often the program was killed before it had finished."""

    def run(self, words: list[str]) -> None:
        """One run; the first is left to end, so that its length is known."""
        process = subprocess.Popen(
            [sys.executable, "-c", self._program, str(PROJECT / "tests"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            if process.stdout.readline() != b"ready\n":
                raise AssertionError(process.communicate()[1].decode())
            started = time.monotonic()
            process.stdin.write(b"x")
            process.stdin.flush()
            if not self._length:
                if process.stdout.readline() != b"done\n":
                    raise AssertionError(process.communicate()[1].decode())
                self._length = time.monotonic() - started
            else:
                time.sleep(self._random.random() * self._length)
            process.kill()
            done = b"done" in process.stdout.read()
        self.hits += not done
        self._length *= 0.93 if done else 1.02


def _imports(release: Release, tmp_path: Path, hits: int) -> None:
    write(tmp_path / "b", release.plan())
    killer = Killer(IMPORT, 20260101)
    killer.run([str(tmp_path / "timed"), str(tmp_path / "b")])
    for number in range(5 * hits):
        place = tmp_path / f"store{number % 2}"
        killer.run([str(place), str(tmp_path / "b")])
        with LocalStore.open(place, create=True) as store:
            assert store.verify().problems == []
            if store.roots():
                assert store.contains(release.trees[3])
            if number % 2:
                bring(tmp_path / "b", store)
                assert store.contains(release.trees[3])
                assert store.verify().problems == []
                for name in store.roots():
                    store.remove_root(name)
                store.gc()
        if killer.hits == hits:
            return
    raise AssertionError(f"only {killer.hits} of {hits} kills came in time")


def test_an_import_survives_being_killed(release: Release, tmp_path: Path) -> None:
    _imports(release, tmp_path, 4)


@pytest.mark.slow
def test_an_import_survives_being_killed_a_hundred_times(release: Release, tmp_path: Path) -> None:
    _imports(release, tmp_path, 100)


EXPORT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from reprobuild.core.bundle import format as layout
layout.PIECE = 20_000
import random
from support.bundles import make_release, write
BIG = {f"f{n}": random.Random(n).randbytes(9_000) for n in range(120)}
release = make_release(Path(sys.argv[2]), result=BIG)
print("ready", flush=True)
sys.stdin.read(1)
write(Path(sys.argv[3]), release.plan())
print("done", flush=True)
"""


def _exports(release: Release, tmp_path: Path, hits: int) -> None:
    fresh = write(tmp_path / "fresh", release.plan())
    expected, path = (tmp_path / "fresh").read_bytes(), tmp_path / "b"
    killer = Killer(EXPORT, 20260102)
    killer.run([str(release.store.path), str(tmp_path / "timed")])
    for number in range(5 * hits):
        killer.run([str(release.store.path), str(path)])
        if path.exists():  # whole or not at all
            assert path.read_bytes() == expected
            path.unlink()
        if number % 3 == 2:
            assert write(path, release.plan()).digest == fresh.digest
            assert path.read_bytes() == expected
            path.unlink()
        if killer.hits == hits:
            return
    raise AssertionError(f"only {killer.hits} of {hits} kills came in time")


def test_an_export_survives_being_killed(release: Release, tmp_path: Path) -> None:
    _exports(release, tmp_path, 4)


@pytest.mark.slow
def test_an_export_survives_being_killed_a_hundred_times(release: Release, tmp_path: Path) -> None:
    _exports(release, tmp_path, 100)
