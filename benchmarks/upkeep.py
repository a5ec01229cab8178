"""Collection and verification of large stores.

* gc – a store of that many blobs, a tenth of them kept by nothing: against `nix-store --gc` of a
  store of at most 10,000 paths, a tenth of them dead, its time scaled by the number of objects;
* verify – every object hashed again: against `sha256sum -c` over the same bytes.

    benchmarks/upkeep.py [--quick] [gc] [verify]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nix
from content import ADD, medium, small
from harness import Row, Suite, Taken, Way, clear, command, contest, once, python

from reprobuild.adapters.store.seen import Seen
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, Entry, File, Tree

GC = """\
import sys
from reprobuild.adapters.store.store import LocalStore
with LocalStore.open(sys.argv[1]) as store:
    assert store.gc().bytes > 0
"""

VERIFY = """\
import sys
from reprobuild.adapters.store.store import LocalStore
with LocalStore.open(sys.argv[1]) as store:
    assert not store.verify().problems
"""

PER_TREE = 1000
NIX_PATHS = 10_000


def populate(path: Path, blobs: int) -> None:
    """A store of tiny blobs, a thousand a tree; a root keeps all trees but every tenth.

    All of them were seen (cache/seen), as those are that a store took in itself.
    """
    with LocalStore.open(path, create=True) as store:
        store.set_root("empty", b'{"keep":{}}')
    kept: dict[bytes, Entry] = {}
    memo = Seen(str(path / "cache" / "seen"))
    for number in range(blobs // PER_TREE):
        entries: dict[bytes, Entry] = {}
        for index in range(PER_TREE):
            data = f"{number}.{index}\n".encode()
            digest = Digest.of(data)
            blob = path / "blobs" / digest.hex[:2] / digest.hex
            _place(blob, data)
            memo.later(digest.hex, False, str(blob))
            entries[f"f{index}".encode()] = File(digest, len(data), False)
        tree = Tree.of(entries)
        _place(path / "trees" / tree.digest.hex[:2] / tree.digest.hex, tree.encode())
        if number % 10:
            kept[f"t{number}".encode()] = Directory(tree.digest)
        if number % 50 == 49:
            time.sleep(0.05)  # so that all of them are settled
            memo.keep()
    time.sleep(0.05)
    memo.keep()
    top = Tree.of(kept)
    _place(path / "trees" / top.digest.hex[:2] / top.digest.hex, top.encode())
    with LocalStore.open(path) as store:
        store.set_root("all", b'{"keep":{"trees":["' + top.digest.hex.encode() + b'"]}}')


def _place(path: Path, data: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    except FileNotFoundError:
        path.parent.mkdir(exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    os.write(fd, data)
    os.utime(fd, ns=(10**9, 10**9))
    os.close(fd)


EXPRESSION = """\
let file = i: builtins.toFile "f${toString i}" "${toString i}"; in
derivation {
  name = "keep"; system = "x86_64-linux"; builder = "/bin/sh";
  files = builtins.genList (i: file i) %d;
  other = builtins.seq (builtins.foldl' (a: i: builtins.seq (file i) a) 0
    (builtins.genList (i: i + %d) %d)) "";
}
"""


def _nix_store(home: Path, paths: int) -> dict[str, str]:
    env = nix.environment(home)
    live = paths * 9 // 10
    expression = home / "all.nix"
    expression.write_text(EXPRESSION % (live, live, paths - live))
    subprocess.run(
        ["nix-instantiate", "--add-root", str(home / "root"), str(expression),
         "--option", "fsync-metadata", "false"],
        env=env, check=True, capture_output=True,
    )  # fmt: skip
    return env


def gc(home: Path, blobs: int, rounds: int) -> Iterator[Row]:
    """Each round collects a store made anew: seldom, where there are many blobs."""
    if not nix.installed():
        return
    store, other = home / "store", home / "nix"
    paths = min(blobs, NIX_PATHS)
    mine: list[Taken] = []
    theirs: list[Taken] = []
    for _ in range(rounds if blobs <= 100_000 else 1):
        clear(store)
        populate(store, blobs)
        clear(other)
        env = _nix_store(other, paths)
        theirs.append(once(Way(["nix-store", "--gc"], env=env)))
        mine.append(once(Way(python(GC, store))))
    row = Row("gc, a tenth dead", f"{blobs:,}", f"nix-store --gc × {blobs // paths}",
              mine, theirs, 1, blobs / paths)  # fmt: skip
    print(row.line(), flush=True)
    yield row


def verify(home: Path, files: int, rounds: int) -> Iterator[Row]:
    """Both over content that is in the page cache."""
    content, store = home / "content", home / "store"
    content.mkdir()
    if files <= 2500:
        medium(content, files / 2500)
    else:
        small(content, files)
    subprocess.run(python(ADD, store, content), check=True)
    sums = home / "sums"
    find = f"cd {content} && find . -type f -print0 | xargs -0 sha256sum > {sums}"
    subprocess.run(["sh", "-c", find], check=True)
    ours = Way(python(VERIFY, store))
    theirs = Way(["sha256sum", "--quiet", "-c", str(sums)], cwd=content)
    yield contest("verify", f"{files:,}", "sha256sum -c", ours, theirs,
                  wanted=0.5, rounds=rounds)  # fmt: skip


ALL: Suite = {
    "gc": (gc, (10_000, 100_000, 1_000_000)),
    "verify": (verify, (500, 2500, 50_000)),
}


if __name__ == "__main__":
    sys.exit(command(__doc__, ALL))
