"""Two releases of many files that differ in a few: `reprobuild diff` against `diff -rq`.

    python benchmarks/diff.py [--files 100000] [--changed 50] [--rounds 7] [--json FILE]

Asserts, for 100,000 files that differ in 50: under a second, under 200 MB, and at least 20 times
faster than `diff -rq` on the unpacked trees in the same run. Then prints what 10, 100 and 1000
changed files cost. Times are those of whole processes with a warm page cache, both in turns:
medians, with the smallest and the largest; the ratio is the median of those of neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest

COMMAND = [sys.executable, "-c", "from reprobuild.cli.main import entry; entry()"]

PER_DIRECTORY = 100


@dataclass(frozen=True)
class Run:
    """Seconds of wall clock and of processor, and the largest resident size in MB."""

    seconds: float
    cpu: float
    megabytes: float


ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""An installed program has its byte code at hand."""


WATCH = """
import json, os, sys, time
quiet = os.open(os.devnull, os.O_WRONLY)
start = time.perf_counter()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[
    (os.POSIX_SPAWN_DUP2, quiet, 1)])
_, code, usage = os.wait4(child, 0)
seconds = time.perf_counter() - start
print(json.dumps([os.waitstatus_to_exitcode(code), seconds, usage.ru_utime + usage.ru_stime,
                  usage.ru_maxrss / 1000]))
"""
"""A small process that watches another: what is started by a large one is counted as large."""


def once(argv: Sequence[str], status: int = 0) -> Run:
    """One run to its end."""
    watched = [sys.executable, "-I", "-S", "-c", WATCH, *argv]
    done = subprocess.run(watched, check=True, capture_output=True, env=ENVIRONMENT)
    code, seconds, cpu, megabytes = json.loads(done.stdout)
    if code != status:
        raise SystemExit(f"{argv} ended with {code}: {done.stderr.decode()[-1000:]}")
    return Run(seconds, cpu, megabytes)


def line(runs: Sequence[Run]) -> str:
    """Medians for people, with the smallest and the largest time."""
    wall = sorted(run.seconds for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    return (
        f"{statistics.median(wall):7.3f} s ({wall[0]:.3f}–{wall[-1]:.3f})  "
        f"{cpu:7.3f} s cpu  {max(run.megabytes for run in runs):5.0f} MB"
    )


def contents() -> list[bytes]:
    """Texts of 6 to 80 KB, 40 on average. An image's 100,000 files have more: 10 GB and up."""
    random = Random(0)
    return [
        b"".join(b"value_%d = %d\n" % (n, random.getrandbits(60)) for n in range(size))
        for size in (random.randrange(200, 2600) for _ in range(500))
    ]


def write_tree(root: Path, files: int) -> list[Path]:
    """Files in directories of a hundred, two levels deep."""
    texts = contents()
    paths = []
    for number in range(files):
        directory = number // PER_DIRECTORY
        path = root / f"d{directory // 32:03}" / f"e{directory % 32:03}" / f"f{number % 100:03}.py"
        if number % PER_DIRECTORY == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(texts[number * 7919 % len(texts)])
        paths.append(path)
    return paths


def release(root: Path, store: Path, revision: str) -> None:
    """Stores the tree, and writes the release's statement beside it."""
    with LocalStore.open(store, create=True) as content:
        tree = content.capture(root / "tree")
        content.barrier()
    drv = Digest.of(str(tree).encode())
    component = {"drv": str(drv), "name": "files", "tree": str(tree), "version": "1"}
    statement = {
        "components": [component],
        "format": 0,
        "release": {"codename": "benchmark", "revision": revision},
    }
    (root / "statement.json").write_text(json.dumps(statement))


def change(paths: Sequence[Path], count: int) -> None:
    """Other content in `count` files, spread over the tree; more are a superset of fewer."""
    for number, path in enumerate(Random(1).sample(list(paths), 1000)[:count]):
        path.write_bytes(b"changed = %d\n" % number)


def ours(old: Path, new: Path, store: Path) -> list[str]:
    """The command that is measured."""
    sides = [f"file:{root}/statement.json" for root in (old, new)]
    return [*COMMAND, "--store", str(store), "diff", *sides]


def main() -> int:
    """Runs it; 1 when a limit does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--changed", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reprobuild-bench-") as home:
        base = Path(home)
        old, new, store = base / "old", base / "new", base / "store"
        paths = write_tree(old / "tree", options.files)
        subprocess.run(["cp", "-a", str(old), str(new)], check=True)
        moved = [new / path.relative_to(old) for path in paths]
        release(old, store, "r1")
        growth: dict[int, list[Run]] = {}
        mine: list[Run] = []
        theirs: list[Run] = []
        for count in sorted({10, options.changed, 100, 1000}):
            change(moved, count)
            release(new, store, "r2")
            _check_answer(old, new, store, count)
            argv, trees = ours(old, new, store), [str(old / "tree"), str(new / "tree")]
            peer = ["diff", "-rq", *trees]
            if count == options.changed:
                once(peer, 1)
            for _ in range(options.rounds):
                growth.setdefault(count, []).append(once(argv))
                if count == options.changed:
                    theirs.append(once(peer, 1))
            print(f"  {count:>5} changed    {line(growth[count])}", flush=True)
        mine = growth[options.changed]
    ratios = sorted(b.seconds / a.seconds for a, b in zip(mine, theirs, strict=True))
    ratio = statistics.median(ratios)
    busy = statistics.median(b.cpu / a.cpu for a, b in zip(mine, theirs, strict=True))
    print(f"{options.files} files, {options.changed} differ")
    print(f"  reprobuild diff  {line(mine)}")
    print(f"  diff -rq         {line(theirs)}")
    print(f"  times faster     {ratio:7.1f} ({ratios[0]:.1f}–{ratios[-1]:.1f}), of cpu {busy:.1f}")
    if options.json is not None:
        result = {
            "changed": options.changed, "files": options.files, "ours": [asdict(r) for r in mine],
            "theirs": [asdict(r) for r in theirs], "ratio": ratio,
            "growth": {str(k): [asdict(r) for r in v] for k, v in growth.items()},
        }  # fmt: skip
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    held = {
        "under a second": statistics.median(r.seconds for r in mine) < 1,
        "under 200 MB": max(r.megabytes for r in mine) < 200,
        "20 times faster than diff -rq": ratio >= 20,
    }
    for what, holds in held.items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {what}")
    return 0 if all(held.values()) else 1


def _check_answer(old: Path, new: Path, store: Path, count: int) -> None:
    argv = ours(old, new, store)
    place = argv.index("--store")
    done = subprocess.run(
        [*argv[:place], "--json", *argv[place:], "--all"], check=True, capture_output=True
    )
    files = json.loads(done.stdout)["components"]["files"]["output"]["files"]
    if len(files) != count or any(file["status"] != "changed" for file in files):
        raise SystemExit(f"{len(files)} files were found, not {count}")


if __name__ == "__main__":
    sys.exit(main())
