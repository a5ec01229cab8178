"""How long a run with nothing to do takes, against `python3 -c 'import click'`.

Both are started in turns by the same interpreter, so that what else the machine does hits both.
Prints medians, their spread and the ratio; exits 1 when the ratio is 2 or more.

    benchmarks/noop.py [--rounds N] [--limit RATIO] [-C DIR] [--store DIR] [INSTALLABLE]

Without -C a small project is made in a temporary directory. With it, the project there must have
been realized already.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLAKE = """\
format = 0
default = "demo"
[inputs.notes]
kind = "path"
path = "notes"
[outputs.demo]
components = ["notes"]
[outputs.demo.release]
codename = "demo"
revision = "r1"
date = 2026-01-02
repository = "example.org/demo"
tag = "{codename}-{date}-{revision}"
[outputs.demo.image]
entrypoint = ["/bin/true"]
"""

COMPONENT = """\
version = "1.0"
input = "notes"
result = "source"
[image]
place = [{ from = "source", to = "usr/share/notes" }]
"""


def small_project(home: Path) -> None:
    """Writes a project whose image is made by built-ins alone."""
    for name, text in {
        "flake-like.toml": FLAKE,
        "derivations/notes.toml": COMPONENT,
        "notes/notes.txt": "a note\n",
    }.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def seconds(argv: list[str]) -> float:
    """The wall time of a command that must succeed."""
    begin = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def row(name: str, times: list[float]) -> float:
    """Prints median and quartiles in milliseconds; the median."""
    low, middle, high = statistics.quantiles(times, n=4)
    print(
        f"{name:<28} median {middle * 1000:7.1f} ms   quartiles {low * 1000:.1f}–{high * 1000:.1f}"
        f"   fastest {min(times) * 1000:.1f}"
    )
    return middle


def measure(command: list[str], rounds: int) -> float:
    """Runs both in turns; the ratio of the medians."""
    base = [sys.executable, "-c", "import click"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    if done.stdout.splitlines()[-1] != "nothing to do":
        sys.exit(f"there was something to do:\n{done.stdout}")
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        theirs.append(seconds(base))
        ours.append(seconds(command))
    below = row("python3 -c 'import click'", theirs)
    above = row("reprobuild realize", ours)
    pairs = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, _, high = statistics.quantiles(pairs, n=4)
    print(f"{'ratio of medians':<28} {above / below:14.2f}      pairs {low:.2f}–{high:.2f}")
    return above / below


def main() -> int:
    """Measures; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("-C", dest="directory", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("installable", nargs="*")
    given = parser.parse_args()
    script = Path(sys.executable).with_name("reprobuild")
    with tempfile.TemporaryDirectory(prefix="reprobuild-bench-") as scratch:
        directory = given.directory or Path(scratch)
        words = [str(script), "-C", str(directory)]
        if given.store:
            words += ["--store", str(given.store)]
        words.append("--quiet")
        if given.directory is None:
            os.environ.pop("REPROBUILD_STORE", None)
            small_project(directory)
            subprocess.run([*words, "lock"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*words, "realize", *given.installable], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        ratio = measure([*words, "realize", *given.installable], given.rounds)
    return 0 if ratio < given.limit else 1


if __name__ == "__main__":
    sys.exit(main())
