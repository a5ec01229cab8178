"""Builds on other machines against builds here: overhead, scaling, bytes for a small change.

A trial cluster on loopback shares this machine's cores with everything else, so figures of one
and two nodes say what the way there costs, and that work is spread; more machines would make
it faster, this can not. All runs of a round are in turns; each begins with an empty store, and its
recipes are its own, so that nothing is remembered.

    benchmarks/remote.py [--trivial N] [--medium N] [--rounds N] [--kernels DIR#INSTALLABLE]

Needs the extra `remote`, bubblewrap and busybox-static. `--kernels` builds the closure of an
installable of a project that was realized already again, here and there (`--check=closure`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reprobuild.adapters.builders import builtins
from reprobuild.adapters.remote.cluster import Cluster, url
from reprobuild.adapters.remote.service import Remote
from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
from reprobuild.adapters.store.scanmemo import SqliteScanMemo
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation, FixedOutput, Hints, Input, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.tree import Directory, Symlink, Tree
from reprobuild.engine.build import Builder
from reprobuild.engine.narrow import Narrower
from reprobuild.engine.realize import Realizer, Wishes
from reprobuild.engine.remote import Elsewhere
from reprobuild.engine.scheduler import Limits
from reprobuild.ports import NullReporter

BUSYBOX = Path("/bin/busybox")
JOBS = 2
TRIVIAL = "echo {word} > /out/out/file"
MEDIUM = "dd if=/dev/zero bs=1M count=400 2>/dev/null | sha256sum > /out/out/file; echo {word}"


@dataclass(frozen=True)
class Took:
    """Seconds of one run, by the clock and of processor time of this process and its children."""

    wall: float
    cpu: float
    uploaded: int = 0
    downloaded: int = 0


class NoFetcher:
    """All content is in the store before."""

    def fetch(self, *_: object) -> Digest:
        raise AssertionError("nothing is to be fetched")


class Bench:
    """A store, with a root of busybox and an input of many files."""

    def __init__(self, home: Path, remote: str, jobs: int) -> None:
        self.store = LocalStore.open(home / "store", create=True)
        self.home, self.remote, self.jobs = home, remote, jobs
        self.cancel = threading.Event()
        with BUSYBOX.open("rb") as file:
            busybox = self.store.add_blob(file, executable=True)
        names = ("sh", "dd", "sha256sum", "cat", "echo")
        bin_ = Tree.of({b"busybox": busybox, **{n.encode(): Symlink(b"busybox") for n in names}})
        self.box = self.add(Tree.of({b"bin": Directory(bin_.digest)}), bin_)

    def add(self, root: Tree, *below: Tree) -> Derivation:
        self.store.add_trees({**{t.digest: t for t in below}, root.digest: root})
        name = f"t{root.digest.short}"
        fixed = FixedOutput("tree", tree=root.digest)
        return Derivation(name, "fetch", fixed=fixed, origin={"kind": "path"})

    def step(self, name: str, run: str, *needs: Derivation) -> Derivation:
        inputs = [Input("box", self.box.digest, at="/")]
        inputs += [Input(f"i{n}", d.digest, at=f"/in{n}") for n, d in enumerate(needs)]
        return Derivation(
            name, "sandbox", tuple(inputs), argv=("sh", "-c", run), env={"PATH": "/bin"},
            hints=Hints(memory=2**20),
        )  # fmt: skip

    def run(self, steps: list[Derivation], *sources: Derivation) -> Took:
        graph = Graph()
        for node in (self.box, *sources, *steps):
            graph.add(node)
        grade = Isolation.REMOTE if self.remote else Isolation.FULL
        builder = Builder(
            content=self.store,
            executor=BubblewrapExecutor(Isolation.FULL, self.home / "run"),
            fetcher=NoFetcher(),
            builtins=builtins(),
            reporter=NullReporter(),
            logs=self.store.logs,
            work=self.home / "work",
            cancel=self.cancel,
        )
        realizer = Realizer(
            content=self.store, catalog=self.store, builder=builder, reporter=NullReporter(),
            narrower=Narrower(self.store), cancel=self.cancel,
        )  # fmt: skip
        executor = None
        if self.remote:
            memo = SqliteScanMemo(self.home / "memo.sqlite")
            remote = Remote(self.store, memo, {}, NullReporter(), self.cancel)
            executor = remote.executor(self.remote, jobs=self.jobs, fallback=False)
            realizer.elsewhere = Elsewhere(
                executor, NullReporter(), self.store.logs, self.cancel, fallback=False
            )
        before, cpu = time.monotonic(), _cpu()
        with self.store.lease():
            wishes = Wishes(grade, Limits(JOBS, JOBS, 2**34))
            done = realizer.realize(graph, [s.digest for s in steps], wishes)
        took = Took(time.monotonic() - before, _cpu() - cpu)
        if executor is not None:
            executor.close()
        assert done.built + done.shared + done.reused >= len(steps)
        away = realizer.elsewhere
        if away is None:
            return took
        return Took(took.wall, took.cpu, away.uploaded, away.downloaded)

    def close(self) -> None:
        self.store.close()


def _cpu() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def timed(place: str, jobs: int, count: int, pattern: str, word: str) -> Took:
    """One run from an empty store."""
    with tempfile.TemporaryDirectory(prefix="reprobuild-remote-") as home:
        bench = Bench(Path(home), place, jobs)
        steps = [bench.step(f"s{i}", pattern.format(word=f"{word}-{i}")) for i in range(count)]
        try:
            return bench.run(steps)
        finally:
            bench.close()


def row(work: str, count: int, runs: dict[str, list[Took]]) -> None:
    """Prints one work: medians, what each action costs more than here, ratios with their spread."""
    here = runs["here"]
    base = statistics.median(t.wall for t in here)
    for name, took in runs.items():
        wall = statistics.median(t.wall for t in took)
        ratios = [a.wall / b.wall for a, b in zip(took, here, strict=True)]
        extra = (wall - base) / count * 1000
        print(
            f"{work:<22} {count:>5} {name:<16} {wall:8.2f} s {wall / count * 1000:8.1f} ms each"
            f" {extra:+8.1f} ms  ×{statistics.median(ratios):.2f}"
            f" ({min(ratios):.2f}–{max(ratios):.2f})  client cpu"
            f" {statistics.median(t.cpu for t in took) / count * 1000:.1f} ms each"
        )


def scaling(options: argparse.Namespace) -> None:
    """Trivial and medium actions, here, on one node and on two."""
    for work, count, pattern in (
        ("trivial", options.trivial, TRIVIAL),
        ("medium", options.medium, MEDIUM),
    ):
        if not count:
            continue
        runs: dict[str, list[Took]] = {}
        for number in range(options.rounds):
            for name, nodes, jobs in (
                ("here", 0, 0), ("one node, 1 job", 1, 1), ("one node, 2 jobs", 1, 2),
                ("two nodes, 1 each", 2, 1),
            ):  # fmt: skip
                word = f"{work}-{number}-{name}-{os.getpid()}"
                runs.setdefault(name, []).append(
                    on_cluster(
                        nodes,
                        jobs,
                        lambda place, j=jobs, c=count, p=pattern, w=word: timed(place, j, c, p, w),
                    )  # type: ignore[misc]
                )
        row(work, count, runs)


def on_cluster(nodes: int, jobs: int, work: Callable[[str], Took]) -> Took:
    """Does it with a fresh cluster, or without one."""
    if not nodes:
        return work("")
    with tempfile.TemporaryDirectory(prefix="reprobuild-cluster-") as home:
        cluster = Cluster(Path(home) / "cluster")
        try:
            return work(url(cluster.up(nodes, jobs)))
        finally:
            cluster.down(purge=True)


def small_change(files: int, size: int) -> None:
    """What moves for one changed file of many, and for a second, empty store."""
    with tempfile.TemporaryDirectory(prefix="reprobuild-remote-") as home:
        cluster = Cluster(Path(home) / "cluster")
        try:
            place = url(cluster.up(2, 1))
            bench = Bench(Path(home) / "one", place, 1)
            blobs = {}
            for i in range(files):
                data = os.urandom(16).hex().encode() * (size // 32)
                path = Path(home) / "file"
                path.write_bytes(data)
                with path.open("rb") as file:
                    blobs[f"f{i:05}".encode()] = bench.store.add_blob(file)
            before = bench.add(Tree.of(dict(blobs)))
            first = bench.run([bench.step("a", "cat /in0/* > /out/out/file", before)], before)
            path.write_bytes(b"changed")
            with path.open("rb") as file:
                blobs[b"f00000"] = bench.store.add_blob(file)
            after = bench.add(Tree.of(dict(blobs)))
            second = bench.run([bench.step("a", "cat /in0/* > /out/out/file", after)], after)
            bench.close()
            total = files * size
            for name, took in (("first run", first), ("one file changed", second)):
                print(
                    f"{name:<22} {files} files of {size} bytes: sent {took.uploaded:,}"
                    f" ({took.uploaded / total:.4f} of the inputs), received {took.downloaded:,}"
                )
        finally:
            cluster.down(purge=True)


def kernels(installable: str, rounds: int) -> None:
    """The closure of an installable again, here and on two nodes."""
    directory, _, name = installable.rpartition("#")
    command = [sys.executable, "-m", "reprobuild", "-C", directory or ".", "--quiet", "--json"]
    runs: dict[str, list[Took]] = {"here": [], "two nodes, 1 each": []}
    count = 1
    with tempfile.TemporaryDirectory(prefix="reprobuild-remote-") as home:
        cluster = Cluster(Path(home) / "cluster")
        place = url(cluster.up(2, 1))
        try:
            for _ in range(rounds):
                for where, more in (
                    ("here", []),
                    ("two nodes, 1 each", ["--remote", place, "--no-local"]),
                ):
                    before, cpu = time.monotonic(), _cpu()
                    done = subprocess.run(
                        [*command, "realize", name, "--check=closure", *more],
                        capture_output=True, text=True, check=True,
                    )  # fmt: skip
                    runs[where].append(Took(time.monotonic() - before, _cpu() - cpu))
                    count = max(1, json.loads(done.stdout)["counts"]["checked"])
        finally:
            cluster.down(purge=True)
    row("kernels", count, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trivial", type=int, default=1000)
    parser.add_argument("--medium", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--kernels", metavar="DIR#INSTALLABLE")
    options = parser.parse_args()
    scaling(options)
    small_change(options.files, 10_240)
    if options.kernels:
        kernels(options.kernels, options.rounds)


if __name__ == "__main__":
    main()
