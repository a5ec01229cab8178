"""Trees: adding, adding the next release, hashing, and showing one to a sandbox (showing.py).

* add – a directory becomes a tree of an empty store, durable: against `nix store add-path` (which
  leaves the writing to the kernel) and against `cp -a` followed by `sync -f`;
* next – a second directory that shares 99 % of its files with the first;
* hash – the digest alone, page cache warm: against `nix hash path`;
* show – a tree that is materialised already, mounted into a sandbox: against `cp -al`, and what a
  build takes longer for it.

    benchmarks/content.py [--quick] [add] [next] [hash] [show]
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nix
from harness import MB, Row, Suite, Way, command, contest, python, set_aside
from showing import showings

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
    """Into a sandbox."""
    content = home / "content"
    size = _release(content, files)
    yield from showings(home, content, size, rounds)


ALL: Suite = {
    "add": (add, (500, 2500, 5000, 50_000)),
    "next": (following, (500, 2500, 10_000, 50_000)),
    "hash": (hashed, (500, 2500, 50_000)),
    "show": (show, (2500, 50_000)),
}


if __name__ == "__main__":
    sys.exit(command(__doc__, ALL))
