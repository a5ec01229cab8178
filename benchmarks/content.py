"""Trees: adding, adding the next release, hashing, and showing one to a sandbox.

* add – a directory becomes a tree of an empty store, durable: against `nix store add-path` (which
  leaves the writing to the kernel) and against `cp -a` followed by `sync -f`;
* next – a second directory that shares 99 % of its files with the first;
* hash – the digest alone, page cache warm: against `nix hash path`;
* show – a tree that is materialised already, mounted into a sandbox: against `cp -al`.

    benchmarks/content.py [--quick] [add] [next] [hash] [show]
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import graphs
import nix
from harness import MB, Row, Suite, Taken, Way, command, contest, once, python, set_aside

from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Hints, Isolation
from reprobuild.ports import BuildRequest, Mount

ADD = """\
import sys
from reprobuild.adapters.store.store import LocalStore
with LocalStore.open(sys.argv[1], create=True) as store:
    store.capture(sys.argv[2])
    store.barrier()
"""

HASH = """\
import sys
from reprobuild.adapters.store.treedigest import tree_digest_hex
print(tree_digest_hex(sys.argv[1]))
"""


MEDIUM = (500, 2500, 10_000)
"""Numbers of files that mean files of all sizes (66 MB, 330 MB, 1.3 GB), not small ones."""


def medium(directory: Path, share: float = 1.0) -> None:
    """2,500 files in 100 directories, 330 MB, or that many times more: few large, many small."""
    source = random.Random(1)
    files = round(2500 * share)
    sizes = [min(64 * 1024 / source.random() ** 0.9, 20 * MB) for _ in range(files)]
    scale = 330 * MB * share / sum(sizes)
    for number, size in enumerate(sizes):
        place = directory / f"d{number % 100}"
        place.mkdir(exist_ok=True)
        (place / f"f{number}").write_bytes(source.randbytes(max(1, int(size * scale))))


def small(directory: Path, count: int) -> None:
    """`count` files of half a kB to 4 kB, a hundred a directory."""
    source = random.Random(2)
    for number in range(count // 100):
        place = directory / f"d{number}"
        place.mkdir()
        for file in range(100):
            (place / f"f{file}").write_bytes(source.randbytes(source.randrange(500, 4000)))


def _release(directory: Path, files: int) -> str:
    directory.mkdir(parents=True)
    if files in MEDIUM:
        medium(directory, files / 2500)
    else:
        small(directory, files)
    return f"{files:,}"


def add(home: Path, files: int, rounds: int) -> Iterator[Row]:
    """Into an empty store."""
    content, store, other = home / "content", home / "store", home / "nix"
    size = _release(content, files)
    ours = Way(python(ADD, store, content), prepare=lambda: set_aside(store))
    if nix.installed():
        env = nix.environment(other)

        def empty() -> None:
            set_aside(other)
            nix.environment(other)

        theirs = Way(["nix", "store", "add-path", str(content)], prepare=empty, env=env)
        yield contest("add a tree, durably", size, "nix store add-path", ours, theirs,
                      wanted=0.7 if files <= 2500 else 1, rounds=rounds)  # fmt: skip
    copy = home / "copy"
    script = f"cp -a {content} {copy} && sync -f {copy}"
    theirs = Way(["sh", "-c", script], prepare=lambda: set_aside(copy))
    yield contest("add a tree, durably", size, "cp -a; sync -f", ours, theirs,
                  wanted=1.3, rounds=rounds)  # fmt: skip


def following(home: Path, files: int, rounds: int) -> Iterator[Row]:
    """The next release, against the first one: a hundredth of the files is new."""
    first, second, store = (home / n for n in ("first", "second", "store"))
    size = _release(first, files)
    shutil.copytree(first, second)
    for number, path in enumerate(sorted(p for p in second.rglob("*") if p.is_file())):
        if number % 100 == 0:
            path.write_bytes(path.read_bytes()[:-1] + b"!")

    def with_first() -> None:  # added, not copied: a copy is read before anything in it counts
        set_aside(store)
        subprocess.run(python(ADD, store, first), check=True)

    ours = Way(python(ADD, store, second), prepare=with_first)
    theirs = Way(python(ADD, store, first), prepare=lambda: set_aside(store))
    yield contest("add release n+1, 99 % shared", size, "adding release n", ours, theirs,
                  wanted=0.2, rounds=rounds)  # fmt: skip
    with_first()
    before = _bytes(store)
    subprocess.run(python(ADD, store, second), check=True)
    grown = _bytes(store) / before - 1
    print(f"{'':34} the store grew by {grown * 100:.1f} % (wanted: at most 5 %)", flush=True)


def _bytes(directory: Path) -> int:
    done = subprocess.run(["du", "-s", "--block-size=1", str(directory)], check=True,
                          capture_output=True, text=True)  # fmt: skip
    return int(done.stdout.split()[0])


def hashed(home: Path, files: int, rounds: int) -> Iterator[Row]:
    """The digest of a directory."""
    if not nix.installed():
        return
    content = home / "content"
    size = _release(content, files)
    env = nix.environment(home / "nix")
    ours = Way(python(HASH, content))
    theirs = Way(["nix", "hash", "path", str(content)], env=env)
    yield contest("hash a tree, warm", size, "nix hash path", ours, theirs,
                  wanted=0.6, rounds=rounds)  # fmt: skip


def show(home: Path, files: int, rounds: int) -> Iterator[Row]:
    """What a tree adds to a sandbox: with it less without it, and asking the store for it.

    Measured in this process, since starting Python is no part of it; the first time that a process
    asks is a row of its own.
    """
    content, root, copy = home / "content", home / "root", home / "copy"
    size = _release(content, files)
    (root / "bin").mkdir(parents=True)
    shutil.copyfile(graphs.shell(), root / "bin/sh")
    (root / "bin/sh").chmod(0o755)
    with LocalStore.open(home / "store", create=True) as store:
        tree, base = store.capture(content), store.capture(root)
        store.barrier()
        store.materialise(tree)
        shell = store.materialise(base)
        time.sleep(2.1)  # from then on what was made is known by its inodes' times
    with LocalStore.open(home / "store") as store:
        store.materialise(tree)
    runtime = home / "run"
    runtime.mkdir()
    executor = BubblewrapExecutor(Isolation.FULL, runtime)
    number = 0

    def sandbox(*mounts: Mount) -> float:
        nonlocal number
        number += 1
        work = home / f"work{number}"
        (work / "out/out").mkdir(parents=True)
        request = BuildRequest("show", ("/bin/sh", "-c", ":"), {}, "/build",
                               (Mount("/", shell), *mounts), ("out",), work, Hints())  # fmt: skip
        begin = time.perf_counter()
        with Path(os.devnull).open("wb") as log:
            outcome = executor.run(request, log, threading.Event())
        taken = time.perf_counter() - begin
        assert not outcome.reason, outcome
        executor.discard(work)
        return taken

    sandbox()
    linking = Way(["cp", "-al", str(content), str(copy)], prepare=lambda: set_aside(copy))
    theirs = [once(linking) for _ in range(rounds + 1)][1:]
    first: list[Taken] = []
    later: list[Taken] = []
    for _ in range(rounds):
        with LocalStore.open(home / "store") as store:
            begin = time.perf_counter()
            path = store.materialise(tree)
            first.append(Taken(time.perf_counter() - begin, 0, 0))
            asked = _per_call(partial(store.materialise, tree))
        more = [sandbox(Mount("/tree", path)) - sandbox() for _ in range(40)]
        later.append(Taken(max(0.0, statistics.median(more)) + asked, 0, 0))
    for work, taken in (("show a tree, first in a process", first), ("show a tree", later)):
        row = Row(work, size, "cp -al", taken, theirs, 0.01)
        print(row.line(), flush=True)
        yield row


def _per_call(work: Callable[[], object], times: int = 200) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begin) / times


ALL: Suite = {
    "add": (add, (500, 2500, 5000, 50_000)),
    "next": (following, (500, 2500, 10_000, 50_000)),
    "hash": (hashed, (500, 2500, 50_000)),
    "show": (show, (2500, 50_000)),
}


if __name__ == "__main__":
    sys.exit(command(__doc__, ALL))
