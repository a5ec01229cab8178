"""Stores, actions and executors for tests of remote execution."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from fakes.reapi import Manners, Server
from reprobuild.adapters.remote.access import Access
from reprobuild.adapters.remote.executor import ReapiExecutor
from reprobuild.adapters.remote.naming import Namers
from reprobuild.adapters.remote.nodes import Node, Nodes
from reprobuild.adapters.remote.server import Server as Client
from reprobuild.core.derivation import Hints, InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.remote.action import RemoteAction, RemoteOutcome
from reprobuild.core.tree import File
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from support.demo import Demo
from support.events import Recorder


class DictMemo:
    """A memo that forgets nothing."""

    def __init__(self) -> None:
        self.known: dict[Digest, bytes] = {}

    def get(self, blob: Digest) -> bytes | None:
        return self.known.get(blob)

    def put(self, scans: Mapping[Digest, bytes]) -> None:
        self.known.update(scans)


def store_tree(store: MemoryStore, files: Mapping[str, bytes]) -> Digest:
    """A tree of files; names that end in `*` are executable."""
    builder = TreeBuilder()
    for name, data in files.items():
        file = store.add_blob(io.BytesIO(data), executable=name.endswith("*"))
        builder.add(name.rstrip("*").encode(), file)
    root, nodes = builder.build()
    store.add_trees(nodes)
    return root


def allow_remote(demo: Demo) -> None:
    """The release may be made on other machines."""
    flake = demo.path / "flake-like.toml"
    flake.write_text(
        flake.read_text().replace('revision = "r1"', 'revision = "r1"\nisolation = "remote"')
    )


def files_of(store: MemoryStore, tree: Digest) -> dict[str, bytes]:
    """The files of a flat tree."""
    return {
        name.decode(): store.blobs[entry.digest]
        for name, entry in store.tree(tree)
        if isinstance(entry, File)
    }


@dataclass
class Bench:
    """An executor over some servers, and a store."""

    servers: list[Server]
    store: MemoryStore = field(default_factory=MemoryStore)
    memo: DictMemo = field(default_factory=DictMemo)
    report: Recorder = field(default_factory=Recorder)
    cancel: threading.Event = field(default_factory=threading.Event)
    access: Access = field(default_factory=Access)
    patience: float = 2.0
    hedge_least: float = 0.3
    window: int = 4
    log: bytes = b""
    _executor: ReapiExecutor | None = None
    _nodes: list[Node] = field(default_factory=list)

    @property
    def executor(self) -> ReapiExecutor:
        if self._executor is None:
            for server in self.servers:
                secure = server.credentials is not None
                client = Client(server.host, "", self.access, secure=secure)
                self._nodes.append(Node(client, most=16, window=self.window))
            self._executor = ReapiExecutor(
                Nodes(self._nodes),
                Namers(self.store, self.memo),
                self.report,
                patience=self.patience,
                hedge_least=self.hedge_least,
            )
        return self._executor

    def busy(self, number: int, done: int) -> None:
        """Has a node done so many actions already, so that another one is asked first."""
        _ = self.executor  # which makes the nodes
        self._nodes[number].done = done

    def action(
        self, word: str, files: Mapping[str, bytes] | None = None, **more: Any
    ) -> RemoteAction:
        """An action whose outputs hold its inputs and `word`."""
        root = store_tree(self.store, {"bin/sh*": b"#!shell", "etc/hosts": b"mine"})
        tree = store_tree(self.store, files if files is not None else {"a": b"one\n"})
        inputs = (("/", InputContent(root)), ("/in", InputContent(tree)))
        options: dict[str, Any] = {"outputs": ("out",), "hints": Hints(timeout=60), **more}
        return RemoteAction(word, ("/bin/sh", "-c", word), {"A": "b"}, "/build", inputs, **options)

    def run(self, action: RemoteAction) -> RemoteOutcome:
        """Runs one."""
        log = io.BytesIO()
        try:
            return self.executor.run(action, log, self.cancel)
        finally:
            self.log = log.getvalue()

    def made(self, outcome: RemoteOutcome, output: str = "out") -> bytes:
        """The one file of an output."""
        return files_of(self.store, outcome.outputs[output])["file"]

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
        for server in self.servers:
            with suppress(RuntimeError):
                server.stop()


def wait_until(true: Any, seconds: float = 20.0) -> None:
    """Waits for a condition."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.01)


BenchOf = Callable[..., Bench]


@contextmanager
def benches(**same: Any) -> Iterator[BenchOf]:
    """What makes benches over servers of such manners, and closes them; `same` holds for all."""
    made: list[Bench] = []

    def make(*manners: Manners, **options: Any) -> Bench:
        # copies, for counts of manners go down
        servers = [Server(replace(m, **same)).start() for m in manners or (Manners(),)]
        made.append(Bench(servers, **options))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.close()


def refused(call: Callable[[], object], code: str) -> ReprobuildError:
    """The error of that code with which a call has to end."""
    with pytest.raises(ReprobuildError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value
