"""How long an image takes to assemble, against umoci, buildah and docker on the same tree.

Two trees: one like the CUDA toolkit (about 330 MB in 2,500 files) and one of 50,000 small files.
Everybody compresses with gzip and starts from the tree as each keeps it: ours in the store, theirs
in a directory (what putting it into the store takes is printed beside). "Equal compression" is the
fastest of our levels whose layer is no larger than the smallest of theirs (one percent is allowed).
docker's own images are not compressed, so it is held against our `compression = "none"`.
Processor seconds are printed beside the clock's, which other work on the machine disturbs.

Prints seconds and ratios. Exits 1 when the first assembly is less than twice as fast as the best of
them at equal compression, or when assembling again after a change of one small component takes more
than a twentieth of the first time.

    benchmarks/image.py [--scale FRACTION] [--only cuda|small] [--tree DIR] [--without TOOL]…
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reprobuild.adapters.builders import builtins
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.tree import File

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

WORDS = [b"mov", b"ld.global", b"st.shared", b"template<", b"cudaError_t", b"__device__", b"0000"]


def content(rng: random.Random, size: int) -> bytes:
    """Bytes about as compressible as libraries and headers are (two to three times)."""
    out = bytearray()
    while len(out) < size:
        out += rng.randbytes(160)
        out += b" ".join(rng.choice(WORDS) for _ in range(40))
    return bytes(out[:size])


def cuda_like(root: Path, scale: float) -> None:
    """2,500 files; a few libraries hold most of the bytes."""
    rng = random.Random(1)
    sizes = [int(s * 2**20 * scale) for s in (110, 70, 40, 30, 20, 15, 10)]
    sizes += [rng.randrange(200, 28_000) for _ in range(int(2493 * scale))]
    for number, size in enumerate(sizes):
        path = root / f"dir{number % 37}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(rng, size))


def small_files(root: Path, scale: float) -> None:
    """50,000 files of some hundred bytes to a few thousand."""
    rng = random.Random(2)
    block = content(rng, 2**20)
    for number in range(int(50_000 * scale)):
        path = root / f"d{number % 251}" / f"e{number % 13}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        at = rng.randrange(len(block) - 4000)
        path.write_bytes(b"# %d\n" % number + block[at : at + rng.randrange(100, 4000)])


@dataclass(frozen=True)
class Taken:
    """Seconds of the clock and of processors."""

    clock: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.clock:8.2f} s ({self.cpu:.2f} s of processors)"


def _cpu() -> float:
    own, children = (
        resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def timed(call: Callable[[], object]) -> Taken:
    """What one call takes."""
    start, cpu = time.monotonic(), _cpu()
    call()
    return Taken(time.monotonic() - start, _cpu() - cpu)


class Ours:
    """Assembly through the built-ins, over a real store."""

    def __init__(self, home: Path, tree: Path) -> None:
        self.store = LocalStore.open(home / "store", create=True)
        self.capture = timed(lambda: setattr(self, "tree", self.store.capture(tree)))
        self.tree: Digest
        small = home / "small"
        small.mkdir()
        (small / "module.py").write_text("VERSION = 1\n")
        self.small = self.store.capture(small)
        (small / "module.py").write_text("VERSION = 2\n")
        self.changed = self.store.capture(small)
        self.layers: dict[str, dict[str, Digest]] = {}

    def layer(self, name: str, tree: Digest, compression: str, level: int) -> None:
        params = {"name": name, "compression": compression, "level": level}
        made = builtins()["layer"].build(params, {"tree": tree}, self.store)
        self.layers[name] = dict(made)

    def image(self) -> None:
        inputs: dict[str, Digest] = {}
        for index, made in enumerate(self.layers.values()):
            inputs |= {f"layer-{index}": made["out"], f"tree-{index}": made["tree"]}
        params = {
            "components": list(self.layers),
            "created": "2026-01-01T00:00:00Z",
            "reference": "example/bench:1",
        }
        builtins()["image"].build(params, inputs, self.store)
        self.store.barrier()

    def first(self, compression: str, level: int = 6) -> None:
        self.layer("big", self.tree, compression, level)
        self.layer("small", self.small, compression, level)
        self.image()

    def again(self, compression: str, level: int = 6) -> None:
        self.layer("small", self.changed, compression, level)
        self.image()

    def size(self) -> int:
        """Of the big layer, in bytes."""
        node = self.store.tree(self.layers["big"]["out"])
        return max(e.size for _, e in node if isinstance(e, File))


def run(*words: str | Path, **env: str) -> None:
    """A tool's call, which must do."""
    done = subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, env=os.environ | env, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{words}: {done.stderr}")


def umoci(home: Path, tree: Path) -> None:
    layout = home / "umoci"
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", f"{layout}:1")
    run("umoci", "insert", "--image", f"{layout}:1", tree, "/")


def buildah(home: Path, tree: Path) -> None:
    storage = ["--root", home / "b-root", "--runroot", home / "b-run", "--storage-driver", "vfs"]
    context = home / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    run("buildah", *storage, "bud", "--isolation", "chroot", "-f", context / "Dockerfile", "-t",
        "bench", tree)  # fmt: skip
    run("buildah", *storage, "push", "bench", f"oci:{home / 'buildah'}:1")


def docker(home: Path, tree: Path, host: str) -> None:
    (home / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    run("docker", "-H", host, "build", "-q", "-f", home / "Dockerfile", "-t", "bench", tree,
        DOCKER_BUILDKIT="0")  # fmt: skip
    run("docker", "-H", host, "save", "-o", home / "docker.tar", "bench")


def measure(name: str, make: Callable[[Path, float], None], options: argparse.Namespace) -> bool:
    """One tree; whether the promises held."""
    good = True
    with tempfile.TemporaryDirectory(prefix="reprobuild-bench-") as folder:
        home = Path(folder)
        tree = home / "tree"
        make(tree, options.scale)
        files = [p for p in tree.rglob("*") if p.is_file()]
        size = sum(p.stat().st_size for p in files)
        print(f"{name}: {len(files)} files, {size / 1e6:.0f} MB, {os.cpu_count()} cores")
        ours = Ours(home, tree)
        print(f"  into the store             {ours.capture}")
        theirs: dict[str, tuple[Taken, int]] = {}
        for tool, call in (("umoci", umoci), ("buildah", buildah)):
            if tool in options.without or shutil.which(tool) is None:
                print(f"  {tool}: not installed, or left out")
                continue
            taken = timed(lambda call=call: call(home, tree))  # type: ignore[misc]
            blobs = (home / tool / "blobs/sha256").iterdir()
            theirs[tool] = (taken, max(p.stat().st_size for p in blobs))
            print(f"  {tool:<26} {taken}, {theirs[tool][1] / 1e6:.1f} MB")
        smallest = min((bytes_ for _, bytes_ in theirs.values()), default=0)
        for level in (1, 2, 3, 4, 6):
            first = timed(lambda level=level: ours.first("gzip", level))  # type: ignore[misc]
            print(f"  reprobuild, level {level}        {first}, {ours.size() / 1e6:.1f} MB")
            if ours.size() <= smallest * 1.01:
                break
        again = timed(lambda: ours.again("gzip", level))
        if theirs:
            best = min((taken for taken, _ in theirs.values()), key=lambda t: t.clock)
            print(
                f"  first assembly: {best.clock / first.clock:.2f} times as fast as the best of "
                f"them ({best.cpu / first.cpu:.2f} by processors)"
            )
            good &= best.clock >= 2 * first.clock
        print(
            f"  again                      {again}: 1/{first.clock / again.clock:.0f} of the first"
        )
        good &= again.clock <= first.clock / 20
        plain = timed(lambda: ours.first("none"))
        print(f"  reprobuild, uncompressed   {plain}")
        good &= measure_docker(home, tree, plain, options)
        ours.store.close()
    return good


def measure_docker(home: Path, tree: Path, plain: Taken, options: argparse.Namespace) -> bool:
    """docker against ours without compression."""
    from support.dockerd import running, why_not  # noqa: PLC0415 - found by the path above

    if "docker" in options.without or why_not():
        print(f"  docker: left out {why_not()}")
        return True
    with running("vfs") as host:
        if host is None:
            print("  docker: its daemon does not start here")
            return True
        taken = timed(lambda: docker(home, tree, host))
    print(f"  docker build and save      {taken}: {taken.clock / plain.clock:.2f} times ours")
    return taken.clock >= 2 * plain.clock


def _copy(source: Path, to: Path) -> None:
    shutil.copytree(source, to, symlinks=True)
    for path in (to, *to.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", choices=("cuda", "small"))
    parser.add_argument("--tree", type=Path, help="measure this tree instead")
    parser.add_argument("--without", action="append", default=[])
    options = parser.parse_args()
    if options.tree is not None:
        source = options.tree
        return 0 if measure(str(source), lambda to, _: _copy(source, to), options) else 1
    good = True
    for name, make in (("cuda", cuda_like), ("small", small_files)):
        if options.only in (None, name):
            good &= measure(name, make, options)
    print("the promises hold" if good else "a promise does not hold")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
