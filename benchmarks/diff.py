"""Two releases of many files that differ in a few: `reprobuild diff` against `diff -rq`.

    python benchmarks/diff.py [--files 100000] [--changed 50] [--json FILE]

Asserts, for 100,000 files that differ in 50: under a second, under 200 MB, and at least 20 times
faster than `diff -rq` on the unpacked trees in the same run. Then prints what 10, 100 and 1000
changed files cost. Times are the best of a few runs, of whole processes, with a warm page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
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

    def __str__(self) -> str:
        return f"{self.seconds:7.3f} s  {self.cpu:7.3f} s cpu  {self.megabytes:5.0f} MB"


def measure(argv: Sequence[str], *, status: tuple[int, ...] = (0,), times: int = 7) -> Run:
    """The best of several runs."""
    best: Run | None = None
    for _ in range(times):
        start = time.perf_counter()
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        _, code, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode not in status:
            raise SystemExit(f"{argv} ended with {process.returncode}")
        run = Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)
        if best is None or run.seconds < best.seconds:
            best = run
    assert best is not None
    return best


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
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reprobuild-bench-") as home:
        base = Path(home)
        old, new, store = base / "old", base / "new", base / "store"
        paths = write_tree(old / "tree", options.files)
        subprocess.run(["cp", "-a", str(old), str(new)], check=True)
        moved = [new / path.relative_to(old) for path in paths]
        release(old, store, "r1")
        growth: dict[int, Run] = {}
        for count in sorted({10, options.changed, 100, 1000}):
            change(moved, count)
            release(new, store, "r2")
            growth[count] = measure(ours(old, new, store))
            print(f"  {count:>5} changed    {growth[count]}", flush=True)
            _check_answer(old, new, store, count)
            if count == options.changed:
                mine = growth[count]
                trees = [str(old / "tree"), str(new / "tree")]
                theirs = measure(["diff", "-rq", *trees], status=(1,), times=3)
    print(f"{options.files} files, {options.changed} differ")
    print(f"  reprobuild diff  {mine}")
    print(f"  diff -rq         {theirs}")
    print(f"  ratio            {theirs.seconds / mine.seconds:7.1f}")
    if options.json is not None:
        result = {
            "changed": options.changed, "files": options.files, "ours": asdict(mine),
            "theirs": asdict(theirs), "ratio": theirs.seconds / mine.seconds,
            "growth": {str(k): asdict(v) for k, v in growth.items()},
        }  # fmt: skip
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    held = {
        "under a second": mine.seconds < 1,
        "under 200 MB": mine.megabytes < 200,
        "20 times faster than diff -rq": theirs.seconds / mine.seconds >= 20,
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
