"""The engine over a real store: what it builds with does as it is told, and notes what it built."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from fakes.world import FakeExecutor, Glue, glue, graph_of, step, wish
from reprobuild.adapters.sandbox.removal import remove_tree
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation, FixedOutput, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.tree import File, Tree
from reprobuild.engine.build import Builder
from reprobuild.engine.narrow import Narrower
from reprobuild.engine.realize import Realized, Realizer
from reprobuild.engine.scheduler import Limits
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildOutcome, BuildRequest, NullReporter, Reporter, Wish


class NotingExecutor(FakeExecutor):
    """Adds a line to a file for each build that ended well, before it is on record."""

    def __init__(self, notes: Path, **fields: Any) -> None:
        super().__init__(**fields)
        self.notes = notes

    def run(self, request: BuildRequest, log: BinaryIO, cancel: Wish) -> BuildOutcome:
        try:
            outcome = super().run(request, log, cancel)
            log.flush()
        except OSError:  # the build's own: it ends badly
            return BuildOutcome("exit", 1, Isolation.FULL, 0, 0, {})
        note(self.notes, request.label)
        return outcome

    def discard(self, workdir: Path) -> None:
        try:
            remove_tree(workdir)
        except OSError as error:
            raise ReprobuildError("E-SANDBOX-SETUP", f"{workdir} stays: {error}") from error


class LocalFetcher:
    """Hands out one file whose text is what the origin says."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        file = self._store.add_blob(io.BytesIO(str(origin["text"]).encode()))
        tree = Tree.of({b"file": file})
        self._store.add_trees({tree.digest: tree})
        return tree.digest


def note(path: Path, line: str) -> None:
    """Adds a line in one write, so that many processes may."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


def text_source(name: str, text: str) -> Derivation:
    """A fetch of a tree with one file."""
    data = text.encode()
    tree = Tree.of({b"file": File(Digest.of(data), len(data))})
    fixed = FixedOutput("tree", tree=tree.digest)
    return Derivation(name, "fetch", fixed=fixed, origin={"kind": "path", "text": text})


def small_graph() -> list[Derivation]:
    """Two sources, three steps and a built-in on top: six actions."""
    one, two = text_source("one", "one\n" * 30), text_source("two", "two\n")
    first, second = step("first", one), step("second", one, two)
    third = step("third", first, second)
    return [one, two, first, second, third, glue("whole", third, second)]


def realize(
    store: LocalStore,
    derivations: Sequence[Derivation],
    notes: Path,
    *,
    jobs: int = 2,
    root: str = "output",
    seconds: float = 0.0,
    executor: FakeExecutor | None = None,
    reporter: Reporter | None = None,
    check: frozenset[Digest] = frozenset(),
) -> Realized:
    """Realizes the last derivation under a lease and writes its root, as the command does."""
    cancel = threading.Event()
    reporter = reporter or NullReporter()
    builder = Builder(
        content=store,
        executor=executor or NotingExecutor(notes, seconds=seconds),
        fetcher=LocalFetcher(store),
        builtins={"glue": Glue()},
        reporter=reporter,
        logs=store.logs,
        work=store.path / "build",
        cancel=cancel,
    )
    realizer = Realizer(
        content=store,
        catalog=store,
        builder=builder,
        narrower=lambda: Narrower(store),
        reporter=reporter,
        cancel=cancel,
    )
    limits = Limits(jobs=jobs, cores=jobs, memory=8 * 2**30)
    with store.lease():
        done = realizer.realize(
            graph_of(derivations), [derivations[-1].digest], wish(limits=limits, check=check)
        )
        kept = {d: done.chosen.get(d) or store.realized(d) for d in [x.digest for x in derivations]}
        records = [r for r in kept.values() if r is not None]
        document = {
            "drvs": sorted({r.drv.hex for r in records}),
            "records": sorted({f"{r.action.hex}/{r.digest.hex}" for r in records}),
            "trees": sorted({t.hex for r in records for t in r.outputs.values()}),
        }
        store.set_root(root, encode({"keep": document}))
        store.materialise(done.chosen[derivations[-1].digest].outputs["out"])
    return done
