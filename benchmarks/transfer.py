"""Export and import against Nix: 330 MB in a few files, and 50,000 small ones.

* export – a tree of the store becomes a bundle, fsynced: against `nix-store --export` into a file,
  fsynced (a plain NAR: nothing is compressed), and against `nix copy` to a directory as a binary
  cache with zstd;
* import – the bundle into an empty store, durable: against `nix-store --import` and `nix copy`
  from that cache, each followed by `sync -f`.

    benchmarks/transfer.py [--quick] [--rounds N] [large] [small]

After each group of rows the sizes of the files are said.
"""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nix
from harness import MB, Row, Suite, Way, clear, command, contest, python

CAPTURE = """\
import sys
from pathlib import Path
from reprobuild.adapters.store.store import LocalStore
with LocalStore.open(Path(sys.argv[1]), create=True) as store:
    print(store.capture(Path(sys.argv[2])).hex)
    store.barrier()
"""

EXPORT = """\
import sys
from pathlib import Path
from reprobuild.adapters.bundle.head import make_boot, make_head
from reprobuild.adapters.bundle.writer import Plan, compressor, write_bundle
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle.closure import Closure
from reprobuild.core.bundle.manifest import RUNTIME, Manifest
from reprobuild.core.digest import Digest
from reprobuild.engine.transfer import Exporter, Held
with LocalStore.open(Path(sys.argv[1])) as store, store.lease():
    head, boot = make_head(b""), make_boot(b"")
    manifest = Manifest(kind=RUNTIME, keep=Closure.of([sys.argv[2]]), outputs={},
                        compressor=compressor(), head=Digest.of(head).hex,
                        boot=Digest.of(boot).hex)
    goods = Exporter(store).ship(manifest, {}, (), Held())
    plan = Plan(manifest.document(), goods.entries, goods.open, head, boot)
    write_bundle(Path(sys.argv[3]), plan, lambda digest: [])
"""

IMPORT = """\
import sys
from pathlib import Path
from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.store.store import LocalStore
from reprobuild.engine.transfer_import import Importer
with LocalStore.open(Path(sys.argv[1]), create=True) as store, store.lease():
    with BundleReader(Path(sys.argv[2])) as bundle:
        Importer(store).run(bundle, trusted=True)
"""


def large(directory: Path, size: int) -> None:
    """Files of 30 MB like a release's: half of them compressed already."""
    source = random.Random(1)
    words = [source.randbytes(8).hex() for _ in range(5000)]
    for number in range(size // (30 * MB)):
        data = (
            source.randbytes(30 * MB)
            if number % 2
            else " ".join(source.choices(words, k=30 * MB // 17)).encode()
        )
        (directory / f"file{number}").write_bytes(data)


def small(directory: Path, count: int) -> None:
    """Files of one to four kB, a hundred a directory."""
    source = random.Random(2)
    for number in range(count // 100):
        place = directory / f"d{number}"
        place.mkdir()
        for file in range(100):
            data = source.randbytes(source.randrange(500, 2000)).hex().encode()
            (place / f"f{file}").write_bytes(data)


def measure(home: Path, what: str, size: str, rounds: int) -> Iterator[Row]:
    """The four contests over `home/content`."""
    content, store, bundle, other = (home / n for n in ("content", "store", "bundle", "other"))
    done = subprocess.run(python(CAPTURE, store, content), check=True, capture_output=True)
    export = Way(
        python(EXPORT, store, done.stdout.decode().strip(), bundle),
        prepare=lambda: bundle.unlink(missing_ok=True),
    )
    bring = Way(python(IMPORT, other, bundle), prepare=lambda: clear(other))
    if not nix.installed():
        return
    env = {**os.environ, "HOME": str(home), "NIX_REMOTE": ""}
    archive, cache, there = home / "archive", home / "cache", home / "there"
    here = f"local?root={home / 'nix'}"
    added = subprocess.run(
        ["nix-store", "--store", here, "--add", content], env=env, check=True, capture_output=True
    )
    path = added.stdout.decode().strip()
    copy = ["nix", "--extra-experimental-features", "nix-command", "copy", "--no-check-sigs"]
    to_cache = [*copy, "--from", here, "--to", f"file://{cache}?compression=zstd", path]
    from_cache = [*copy, "--from", f"file://{cache}", "--to", f"local?root={there}", path]
    export_ = ["nix-store", "--store", here, "--export", path]
    import_ = ["nix-store", "--store", f"local?root={there}", "--import"]

    def shell(text: str, gone: Path) -> Way:
        return Way(["sh", "-ec", text], prepare=lambda: clear(gone), env=env)

    written, synced = shlex.quote(str(archive)), f"sync -f {shlex.quote(str(home))}"
    plain = Way(
        ["sh", "-ec", f"{shlex.join(export_)} > {written}; sync {written}"],
        prepare=lambda: archive.unlink(missing_ok=True),
        env=env,
    )
    yield contest(
        f"export {what}", size, "nix-store --export", export, plain, wanted=1, rounds=rounds
    )
    packed = shell(f"{shlex.join(to_cache)}; {synced}", cache)
    yield contest(f"export {what}", size, "nix copy, zstd", export, packed, wanted=1, rounds=rounds)
    plain = shell(f"{shlex.join(import_)} < {written}; {synced}", there)
    yield contest(
        f"import {what}", size, "nix-store --import", bring, plain, wanted=1, rounds=rounds
    )
    packed = shell(f"{shlex.join(from_cache)}; {synced}", there)
    yield contest(f"import {what}", size, "nix copy, zstd", bring, packed, wanted=1, rounds=rounds)
    cached = sum(p.stat().st_size for p in cache.rglob("*") if p.is_file())
    print(
        f"  bytes: bundle {bundle.stat().st_size / MB:.0f} MB, "
        f"nix-store {archive.stat().st_size / MB:.0f} MB, nix copy {cached / MB:.0f} MB"
    )


def large_files(home: Path, size: int, rounds: int) -> Iterator[Row]:
    """A few files of 30 MB."""
    (home / "content").mkdir()
    large(home / "content", size)
    yield from measure(home, "a few files", f"{size // MB} MB", rounds)


def small_files(home: Path, count: int, rounds: int) -> Iterator[Row]:
    """Many files of one to four kB."""
    (home / "content").mkdir()
    small(home / "content", count)
    yield from measure(home, "small files", f"{count:,}", rounds)


ALL: Suite = {
    "large": (large_files, (60 * MB, 330 * MB)),
    "small": (small_files, (5_000, 50_000)),
}

if __name__ == "__main__":
    sys.exit(command(__doc__, ALL))
