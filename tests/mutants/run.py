"""Faults put into the code on purpose: the suite must notice each of them.

    tests/mutants/run.py [--list] [-k WORD] [FILE.toml…]

Each `[[mutant]]` of a .toml file beside this one has a `name`, a `file` of the repository, a text
to `find` in it (exactly once) and what to `replace` it with, and the `tests` of which at least one
must then fail. `fast = true` puts it into the default run of the suite (test_mutants.py).

The package is copied, changed there, and found there through PYTHONPATH; the repository itself is
never touched. Exits 1 when a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SECONDS = 300
"""After this a mutant counts as noticed: what hangs is noticed, too."""


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    group: str
    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    fast: bool = False

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"

    def problem(self) -> str:
        """Why it cannot be applied any more; empty when it can."""
        path = ROOT / self.file
        if not path.is_file():
            return f"there is no {self.file}"
        count = path.read_text(encoding="utf-8").count(self.find)
        if count != 1:
            return f"{self.file} has the text {count} times, not once"
        missing = [test for test in self.tests if not (ROOT / test.split("::")[0]).exists()]
        if missing:
            return "there is no " + ", ".join(missing)
        return "" if self.tests and self.find != self.replace else "it changes or runs nothing"


def mutants(files: list[Path] | None = None) -> Iterator[Mutant]:
    """All mutants, in order of files."""
    for path in files or sorted(HERE.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            yield Mutant(path.stem, **{**entry, "tests": tuple(entry["tests"])})


@contextmanager
def package_copy() -> Iterator[Path]:
    """A copy of the package's source, to be changed at will."""
    with tempfile.TemporaryDirectory(prefix="reprobuild-mutant-") as scratch:
        Path(scratch).chmod(0o755)  # tests that become another user import from it, too
        copy = Path(scratch, "src")
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg*"))
        yield copy


def pytest_of(package: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Runs tests over the package in `package`."""
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path}
    words = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:randomly"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-m", "not slow", *tests],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )


def trial(mutant: Mutant) -> str:
    """Empty when the tests noticed the fault, else what they did instead."""
    problem = mutant.problem()
    if problem:
        return problem
    with package_copy() as copy:
        path = copy.parent / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.find, mutant.replace), encoding="utf-8")
        try:
            done = pytest_of(copy, mutant.tests)
        except subprocess.TimeoutExpired:
            return ""
    if done.returncode == 1:
        return ""
    end = " / ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
    return f"{'survived' if done.returncode == 0 else f'pytest exited {done.returncode}'}: {end}"


def main() -> int:
    """Runs what was asked for; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-k", default="", help="only those whose name contains this")
    parser.add_argument("--list", action="store_true", help="say what there is")
    given = parser.parse_args()
    chosen = [m for m in mutants(given.files) if given.k in str(m)]
    if given.list:
        for mutant in chosen:
            print(f"{mutant}{'  (fast)' if mutant.fast else ''}")
        return 0
    survivors = 0
    for mutant in chosen:
        result = trial(mutant)
        survivors += bool(result)
        verdict = f"SURVIVED  {mutant}  – {result}" if result else f"noticed   {mutant}"
        print(verdict, flush=True)
    print(f"{len(chosen)} mutants, {survivors} not noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
