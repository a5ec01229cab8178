"""A world for the engine: an executor and a fetcher that do as they are told, over MemoryStore."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from fakes.memory_store import MemoryStore
from reprobuild.core.derivation import (
    Derivation,
    FixedOutput,
    Input,
    Isolation,
)
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph
from reprobuild.core.tree import Tree
from reprobuild.engine.build import Builder
from reprobuild.engine.narrow import Narrower
from reprobuild.engine.realize import Realized, Realizer, Wishes
from reprobuild.engine.scheduler import Limits
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildOutcome, BuildRequest, ContentStore, Reporter, Wish
from support.events import Recorder

Behaviour = Callable[[BuildRequest, Path, BinaryIO], str | None]
"""Fills an output directory; returns the reason of a failure."""


def read_inputs(request: BuildRequest, skip: str = "/") -> bytes:
    """All that lies at the mounts, in order of their places."""
    parts: list[bytes] = []
    for mount in sorted(request.mounts, key=lambda m: m.at):
        if mount.at == skip:
            continue
        files = sorted(p for p in mount.source.rglob("*") if p.is_file())
        parts += [f.read_bytes() for f in files] if mount.source.is_dir() else [
            mount.source.read_bytes()
        ]  # fmt: skip
    return b"".join(parts)


def compile_(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
    """Joins the inputs, drops lines that begin with '#', and adds the command's last word."""
    lines = [line for line in read_inputs(request).splitlines() if not line.startswith(b"#")]
    (out / "file").write_bytes(b"\n".join([*lines, request.argv[-1].encode()]) + b"\n")
    log.write(b"compiled\n")
    return None


@dataclass
class FakeExecutor:
    """Runs `behaviour` of a label, else `compile_`. Remembers what ran, and how many at once."""

    version: str = "sandbox/1"
    isolation: Isolation = Isolation.FULL
    behaviour: dict[str, Behaviour] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    most: int = 0
    seconds: float = 0.0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def probe(self) -> Isolation:
        return self.isolation

    def run(self, request: BuildRequest, log: BinaryIO, cancel: Wish) -> BuildOutcome:
        with self._lock:
            self.ran.append(request.label)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            if self.seconds:
                time.sleep(self.seconds)
            for name in request.directories:
                (request.workdir / "out" / name).mkdir(parents=True)
            out = request.workdir / "out" / request.outputs[0]
            reason = self.behaviour.get(request.label, compile_)(request, out, log)
        finally:
            with self._lock:
                self._now -= 1
        outputs = {name: request.workdir / "out" / name for name in request.outputs}
        return BuildOutcome(reason or "", 1 if reason else 0, self.isolation, 5, 6, outputs)

    def shell(self, request: BuildRequest, argv: Sequence[str]) -> int:
        raise NotImplementedError

    def discard(self, workdir: Path) -> None:
        import shutil

        shutil.rmtree(workdir)

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass
class FakeFetcher:
    """Hands out trees that were put in; remembers what was asked for."""

    content: MemoryStore
    trees: dict[Digest, Tree] = field(default_factory=dict)
    asked: list[Digest] = field(default_factory=list)

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        assert fixed.tree is not None
        self.asked.append(fixed.tree)
        if fixed.tree not in self.trees:
            raise ReprobuildError("E-FETCH", "nowhere to be had")
        self.content.add_trees({fixed.tree: self.trees[fixed.tree]})
        return fixed.tree


class Glue:
    """A built-in that puts its inputs' files together."""

    name = "glue"
    version = 1

    def build(
        self, params: Value, inputs: Mapping[str, Digest], content: ContentStore
    ) -> Mapping[str, Digest]:
        entries = {
            f"{name}-".encode() + file: entry
            for name, tree in inputs.items()
            for file, entry in content.tree(tree)
        }
        made = Tree.of(entries)
        content.add_trees({made.digest: made})
        return {"out": made.digest}


@dataclass
class World:
    """A store, what can be fetched, and a way to realize over it."""

    home: Path
    store: MemoryStore = field(init=False)
    fetcher: FakeFetcher = field(init=False)
    executor: FakeExecutor = field(default_factory=FakeExecutor)
    events: Recorder = field(default_factory=Recorder)
    cancel: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.home / "materialised")
        self.fetcher = FakeFetcher(self.store)

    def source(self, name: str, text: str) -> Derivation:
        """A fetch of a tree with one file."""
        file = self.store.add_blob(io.BytesIO(text.encode()))
        tree = Tree.of({b"file": file})
        self.fetcher.trees[tree.digest] = tree
        return Derivation(
            name, "fetch", fixed=FixedOutput("tree", tree=tree.digest), origin={"kind": "path"}
        )

    def realizer(self, executor: FakeExecutor | None = None) -> Realizer:
        """The use case over this world."""
        builder = Builder(
            content=self.store,
            executor=executor or self.executor,
            fetcher=self.fetcher,
            builtins={"glue": Glue()},
            reporter=self.events,
            logs=self.home / "logs",
            work=self.home / "work",
            cancel=self.cancel,
        )
        return Realizer(
            content=self.store,
            catalog=self.store,
            builder=builder,
            narrower=lambda: Narrower(self.store),
            reporter=self.events,
            cancel=self.cancel,
        )

    def realize(
        self,
        target: Derivation,
        all_: Iterable[Derivation],
        executor: FakeExecutor | None = None,
        **wishes: object,
    ) -> Realized:
        """Realizes a derivation of the graph of `all_`."""
        return self.realizer(executor).realize(graph_of(all_), [target.digest], wish(**wishes))


def wish(**fields: object) -> Wishes:
    """Wishes with two jobs, unless said otherwise."""
    base = Wishes(Isolation.FULL, Limits(jobs=2, cores=2, memory=8 * 2**30))
    return replace(base, **fields)  # type: ignore[arg-type]


def graph_of(all_: Iterable[Derivation]) -> Graph:
    """A graph of derivations given inputs first."""
    graph = Graph()
    for derivation in all_:
        graph.add(derivation)
    return graph


def step(name: str, *needs: Derivation, word: str = "") -> Derivation:
    """A sandboxed step over other derivations."""
    inputs = tuple(
        Input(f"i{index}", need.digest, at=f"/inputs/i{index}") for index, need in enumerate(needs)
    )
    return Derivation(name, "sandbox", inputs, argv=("cc", word or name))


def glue(name: str, *needs: Derivation) -> Derivation:
    """A built-in's derivation over others."""
    inputs = tuple(Input(f"i{index}", need.digest) for index, need in enumerate(needs))
    return Derivation(name, "builtin:glue", inputs)
