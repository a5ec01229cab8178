"""Export and import against nix-store: 330 MB in a few files, and 50,000 small ones.

Nix is measured where nix-store is installed (Debian: nix-bin), over a store of its own with the
same content, in the same run. Every figure is wall-clock time of one pass, files in the page cache.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reprobuild.adapters.bundle.head import make_boot, make_head
from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.bundle.writer import Plan, compressor, write_bundle
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle.closure import Closure
from reprobuild.core.bundle.manifest import RUNTIME, Manifest
from reprobuild.core.digest import Digest
from reprobuild.engine.transfer import Exporter, Held
from reprobuild.engine.transfer_import import Importer

MB = 10**6


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def large(directory: Path) -> int:
    """330 MB like a release: half of it compressed already."""
    source = random.Random(1)
    words = [source.randbytes(8).hex() for _ in range(5000)]
    size = 0
    for number in range(11):
        data = (
            source.randbytes(30 * MB)
            if number % 2
            else " ".join(source.choices(words, k=30 * MB // 17)).encode()
        )
        (directory / f"file{number}").write_bytes(data)
        size += len(data)
    return size


def small(directory: Path) -> int:
    """50,000 files of one to four kB in 500 directories."""
    source = random.Random(2)
    size = 0
    for number in range(500):
        place = directory / f"d{number}"
        place.mkdir()
        for file in range(100):
            data = source.randbytes(source.randrange(500, 2000)).hex().encode()
            (place / f"f{file}").write_bytes(data)
            size += len(data)
    return size


def ours(content: Path, work: Path) -> tuple[float, float, int]:
    """(seconds of export, of import, bytes of the bundle)."""
    with LocalStore.open(work / "one", create=True) as store:
        tree = store.capture(content)
        store.barrier()
        head, boot = make_head(b""), make_boot(b"")
        bundle = work / "bundle"

        def export() -> None:
            manifest = Manifest(
                kind=RUNTIME,
                keep=Closure.of([tree.hex]),
                outputs={},
                compressor=compressor(),
                head=Digest.of(head).hex,
                boot=Digest.of(boot).hex,
            )
            goods = Exporter(store).ship(manifest, {}, (), Held())
            plan = Plan(manifest.document(), goods.entries, goods.open, head, boot)
            write_bundle(bundle, plan, lambda digest: [])

        out = timed(export)

    def bring() -> None:
        with LocalStore.open(work / "two", create=True) as other, BundleReader(bundle) as reader:
            Importer(other).run(reader, trusted=True)
            assert other.contains(tree)

    return out, timed(bring), bundle.stat().st_size


def nix(content: Path, work: Path) -> tuple[float, float, int]:
    """The same by nix-store --export and --import."""
    env = {**os.environ, "HOME": str(work), "NIX_REMOTE": ""}

    def store(name: str) -> list[str]:
        return ["nix-store", "--store", f"local?root={work / name}"]

    added = subprocess.run(
        [*store("nix-one"), "--add", str(content)], env=env, check=True, capture_output=True
    )
    path, archive = added.stdout.decode().strip(), work / "archive"

    def export() -> None:
        with archive.open("wb") as out:
            subprocess.run([*store("nix-one"), "--export", path], env=env, check=True, stdout=out)
            os.fsync(out.fileno())

    def bring() -> None:
        with archive.open("rb") as source:
            subprocess.run(
                [*store("nix-two"), "--import"],
                env=env,
                check=True,
                stdin=source,
                stdout=subprocess.DEVNULL,
            )

    return timed(export), timed(bring), archive.stat().st_size


def main() -> None:
    """Prints a table."""
    print(f"{'':28}{'export':>14}{'import':>14}{'file':>12}")
    for name, make in (("330 MB, 11 files", large), ("50,000 small files", small)):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            content = work / "content"
            content.mkdir()
            size = make(content)
            tools: list[tuple[str, Callable[[Path, Path], tuple[float, float, int]]]]
            tools = [("reprobuild", ours)]
            if shutil.which("nix-store"):
                tools.append(("nix-store", nix))
            else:
                print("nix-store is not installed (apt-get install nix-bin)", file=sys.stderr)
            for tool, measure in tools:
                out, back, file = measure(content, work)
                print(
                    f"{name + ', ' + tool:32}"
                    f"{size / MB / out:5.0f} MB/s{size / MB / back:9.0f} MB/s{file / MB:9.0f} MB"
                    f"   ({out:.1f} s, {back:.1f} s)"
                )
            subprocess.run(["chmod", "-R", "u+w", folder], check=False)


if __name__ == "__main__":
    main()
