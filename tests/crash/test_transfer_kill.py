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
"""

BIG = {f"f{n}": random.Random(n).randbytes(9_000) for n in range(120)}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    made = make_release(tmp_path_factory.mktemp("big") / "store", result=BIG)
    yield made
    made.store.close()


def killed(program: str, words: list[str], after: float) -> bool:
    """Runs a program and kills it `after` seconds into its work; whether it was still at it."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(PROJECT / "tests"), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise AssertionError(process.communicate()[1].decode())
    process.stdin.write(b"x")
    process.stdin.flush()
    time.sleep(after)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return alive


def _moments(count: int, longest: float) -> list[float]:
    source = random.Random(20260101)
    return [source.random() * longest for _ in range(count)]


def _imports(release: Release, tmp_path: Path, moments: list[float]) -> int:
    write(tmp_path / "b", release.plan())
    with LocalStore.open(tmp_path / "timed", create=True) as store:
        started = time.monotonic()
        bring(tmp_path / "b", store)
        length = time.monotonic() - started
    hit = 0
    for number, moment in enumerate(moments):
        place = tmp_path / f"store{number % 2}"
        hit += killed(IMPORT, [str(place), str(tmp_path / "b")], moment * length)
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
    return hit


def test_an_import_survives_being_killed(release: Release, tmp_path: Path) -> None:
    assert _imports(release, tmp_path, _moments(8, 0.9)) > 0


@pytest.mark.slow
def test_an_import_survives_being_killed_a_hundred_times(release: Release, tmp_path: Path) -> None:
    assert _imports(release, tmp_path, _moments(100, 0.9)) > 30


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
"""


def _killed_exports(release: Release, tmp_path: Path, moments: list[float]) -> int:
    from reprobuild.core.bundle import format as layout

    piece, layout.PIECE = layout.PIECE, 20_000
    try:
        fresh = write(tmp_path / "fresh", release.plan())
        expected, hit, path = (tmp_path / "fresh").read_bytes(), 0, tmp_path / "b"
        for number, moment in enumerate(moments):
            hit += killed(EXPORT, [str(release.store.path), str(path)], moment)
            if path.exists():  # whole or not at all
                assert path.read_bytes() == expected
                path.unlink()
            if number % 3 == 2:
                assert write(path, release.plan()).digest == fresh.digest
                assert path.read_bytes() == expected
                path.unlink()
        return hit
    finally:
        layout.PIECE = piece


def test_an_export_survives_being_killed(release: Release, tmp_path: Path) -> None:
    assert _killed_exports(release, tmp_path, _moments(6, 0.15)) > 0


@pytest.mark.slow
def test_an_export_survives_being_killed_a_hundred_times(release: Release, tmp_path: Path) -> None:
    assert _killed_exports(release, tmp_path, _moments(100, 0.25)) > 30
