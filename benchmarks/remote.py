"""Builds on other machines against builds here: overhead, scaling, bytes for a small change.

A trial cluster on loopback shares this machine's cores with everything else, so figures of one
and two nodes say what the way there costs, and that work is spread; more machines would make
it faster, this can not. All places of a round come in turns, each with a fresh cluster; builds
begin with an empty store, and their recipes are their own, so that nothing is remembered.

    benchmarks/remote.py [--rounds N] [--places 1x1,1x2,2x1] [--keep FILE]
                         [trivial] [medium] [change] [kernels]

* trivial – 1,000 builds that do next to nothing: what an action costs on its way;
* medium – 50 builds of a second or two: how work spreads;
* change – what moves when one of 1,000 files that a build reads is another;
* kernels – the closure of `--installable` of a project that was realized already is built again,
  here and there (`--check=closure`); what comes out is compared to the records.

Without words all but the kernels. A round has this machine alone and each of the places: so many
nodes times so many actions at once. `--keep FILE` adds the rounds to what the file has and prints
all of them together, so that a part may be run a round, and a place, at a time; ratios are of one
round. Needs the extra `remote`, bubblewrap and busybox-static.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reprobuild.adapters.builders import builtins
from reprobuild.adapters.remote.cluster import Cluster, url
from reprobuild.adapters.remote.service import Remote
from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
from reprobuild.adapters.store.scanmemo import SqliteScanMemo
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation, FixedOutput, Hints, Input, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.tree import Directory, Entry, Symlink, Tree
from reprobuild.engine.build import Builder
from reprobuild.engine.narrow import Narrower
from reprobuild.engine.realize import Realizer, Wishes
from reprobuild.engine.remote import Elsewhere
from reprobuild.engine.scheduler import Limits
from reprobuild.ports import NullReporter

BUSYBOX = Path("/bin/busybox")
JOBS = 2
TRIVIAL = "echo {word} > /out/out/file"
HERE = "here"
PLACES = {HERE: (0, 0), "1x1": (1, 1), "1x2": (1, 2), "2x1": (2, 1)}
"""Nodes, and actions at once on each."""

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
            narrower=lambda: Narrower(self.store), cancel=self.cancel,
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


class Rounds:
    """What the runs of one work took, by place, in order; those of `keep` before those of now."""

    def __init__(self, work: str, count: int, keep: Path | None) -> None:
        self.work, self.count, self._keep = work, count, keep
        self._rounds: list[dict[str, Took]] = []
        for line in keep.read_text("utf-8").splitlines() if keep and keep.exists() else ():
            kept = json.loads(line)
            if (kept["work"], kept["count"]) == (work, count):
                self._rounds.append({name: Took(**took) for name, took in kept["took"].items()})

    def add(self, took: dict[str, Took]) -> None:
        """A whole round: every place once."""
        self._rounds.append(took)
        if self._keep is not None:
            text = {name: asdict(one) for name, one in took.items()}
            with self._keep.open("a", encoding="utf-8") as file:
                print(json.dumps({"work": self.work, "count": self.count, "took": text}), file=file)

    def print(self) -> None:
        """Medians, what each action costs more than here, ratios of a round with their range."""
        base = statistics.median(round_[HERE].wall for round_ in self._rounds)
        for name in PLACES:
            rounds = [round_ for round_ in self._rounds if name in round_]
            if not rounds:
                continue
            took = [round_[name] for round_ in rounds]
            wall = statistics.median(t.wall for t in took)
            ratios = [round_[name].wall / round_[HERE].wall for round_ in rounds]
            extra = (wall - base) / self.count * 1000
            print(
                f"{self.work:<10} {self.count:>5} {name:<5} {wall:8.2f} s"
                f" {wall / self.count * 1000:8.1f} ms each {extra:+8.1f} ms"
                f"  ×{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f},"
                f" {len(took)} rounds)  client cpu"
                f" {statistics.median(t.cpu for t in took) / self.count * 1000:.1f} ms each",
                flush=True,
            )


def scaling(work: str, count: int, pattern: str, options: argparse.Namespace) -> None:
    """Builds of one kind in every place."""
    rounds = Rounds(work, count, options.keep)
    for number in range(options.rounds):
        took = {}
        for name, (nodes, jobs) in options.places.items():
            word = f"{work}-{number}-{name}-{os.getpid()}-{time.time_ns()}"
            with cluster(nodes, jobs) as place:
                took[name] = timed(place, jobs, count, pattern, word)
        rounds.add(took)
    rounds.print()


@contextmanager
def cluster(nodes: int, jobs: int) -> Iterator[str]:
    """The address of a fresh cluster; nothing without nodes."""
    if not nodes:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="reprobuild-cluster-") as home:
        made = Cluster(Path(home) / "cluster")
        try:
            yield url(made.up(nodes, jobs))
        finally:
            made.down(purge=True)
            # else what its servers took would count as ours when they are waited for later; the
            # starters of builds here are children as well, and live on
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def change(files: int, size: int) -> None:
    """What moves for a build that reads many files, and when one of them is another."""
    with tempfile.TemporaryDirectory(prefix="reprobuild-remote-") as home, cluster(2, 1) as place:
        bench = Bench(Path(home), place, 1)
        blobs: dict[bytes, Entry] = {}
        for number in range(files):
            data = os.urandom(16).hex().encode() * (size // 32)
            blobs[f"f{number:05}".encode()] = bench.store.add_blob(io.BytesIO(data))
        took = []
        for _ in range(2):
            source = bench.add(Tree.of(dict(blobs)))
            step = bench.step("a", "cat /in0/* | sha256sum > /out/out/file", source)
            took.append(bench.run([step], source))
            blobs[b"f00000"] = bench.store.add_blob(io.BytesIO(b"changed"))
        bench.close()
    total = files * size + BUSYBOX.stat().st_size
    for name, one in zip(("first run", "one file changed"), took, strict=True):
        print(
            f"change     {name:<16} {files} files of {size} bytes and a root of"
            f" {BUSYBOX.stat().st_size}: sent {one.uploaded:,}"
            f" ({one.uploaded / total:.4f} of all), received {one.downloaded:,}",
            flush=True,
        )


def kernels(options: argparse.Namespace) -> None:
    """The closure of an installable again, in every place."""
    directory, _, name = options.installable.rpartition("#")
    command = [sys.executable, "-m", "reprobuild", "-C", directory or ".", "--quiet", "--json"]
    done = _checked([*command, "realize", name, "--dry-run", "--check=closure"])
    count = sum(row["deed"] == "build" for row in done["plan"])
    rounds = Rounds("kernels", count, options.keep)
    for _ in range(options.rounds):
        took = {}
        for place, (nodes, jobs) in options.places.items():
            with cluster(nodes, jobs) as address:
                more = ["--remote", address, "--no-local"] if nodes else []
                before, cpu = time.monotonic(), _cpu()
                _checked([*command, "realize", name, "--check=closure", *more])
                took[place] = Took(time.monotonic() - before, _cpu() - cpu)
        rounds.add(took)
    rounds.print()


def _checked(command: list[str]) -> Any:
    """The document that a command prints; ends with its error where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout)


def places(text: str) -> dict[str, tuple[int, int]]:
    """This machine, and the places of a list."""
    names = dict.fromkeys((HERE, *text.split(",")))
    if unknown := [name for name in names if name not in PLACES]:
        raise argparse.ArgumentTypeError(f"there is no place {unknown[0]!r}")
    return {name: PLACES[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", default=["trivial", "medium", "change"])
    parser.add_argument("--trivial", type=int, default=1000)
    parser.add_argument("--medium", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--places", type=places, default=PLACES, metavar="NxJ[,…]")
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--installable", default="quickstart.flashinfer", metavar="DIR#NAME")
    options = parser.parse_args()
    known = {
        "trivial": lambda: scaling("trivial", options.trivial, TRIVIAL, options),
        "medium": lambda: scaling("medium", options.medium, MEDIUM, options),
        "change": lambda: change(options.files, 10_240),
        "kernels": lambda: kernels(options),
    }
    for part in options.parts:
        if part not in known:
            parser.error(f"there is no part {part!r}, but {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # its cluster goes with it
    for part in options.parts:
        known[part]()


if __name__ == "__main__":
    main()
