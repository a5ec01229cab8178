"""A server's action cache and content as a shared cache (engine.remote_cache.EntryStore).

Under which key: that of an action that nobody runs, `reprobuild cache-entry v0 DIGEST` with an
empty input root, where DIGEST is a recipe's or an action's. Its result holds the signed entry as
standard output and each output as a directory, so that a server which looks after what its results
refer to keeps the trees as long as the entry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from reprobuild.adapters.remote.agree import ask, choose
from reprobuild.adapters.remote.download import Downloader
from reprobuild.adapters.remote.naming import Namer, Namers, Source
from reprobuild.adapters.remote.server import Server, Trouble, lied
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.adapters.remote.upload import Uploader
from reprobuild.adapters.remote.watch import Watch
from reprobuild.core.bundle.signedrecord import MAX_SIZE
from reprobuild.core.digest import Digest
from reprobuild.core.remote import wire
from reprobuild.core.remote.entry import Entry, Found
from reprobuild.core.remote.function import Function
from reprobuild.core.remote.wire import Blob
from reprobuild.core.tree import Directory

LIMIT = 2**40
"""Bytes of one output: what it must be is signed, so this only bounds a server's nonsense."""


class ActionCache:
    """One address; its servers are asked in turn when one falls silent."""

    def __init__(
        self,
        servers: list[Server],
        namers: Namers,
        cancel: threading.Event,
        note: Callable[[str], None],
    ) -> None:
        self._servers, self._namers, self._cancel, self._note = servers, namers, cancel, note
        self._lock = threading.Lock()
        self._agreed: _Wire | None = None
        self._watch: Watch | None = None
        self._turn = 0

    @property
    def name(self) -> str:
        """For people."""
        return self._servers[self._turn].host

    def close(self) -> None:
        """Ends what is under way."""
        if self._watch is not None:
            self._watch.close()
        if self._agreed is not None:
            for up, down in zip(self._agreed.up, self._agreed.down, strict=True):
                up.close()
                down.close()
        for server in self._servers:
            server.close()

    def _wire(self) -> _Wire:
        """How the servers are spoken with, agreed on with those that answer first.

        Raises `Trouble` where nobody does, E-REMOTE where they have no digest function in common.
        """
        with self._lock:
            if self._agreed is None:
                found = ask(self._servers, self._cancel, self._note)
                offered = {h: a.functions for h, a in found.items() if not isinstance(a, Trouble)}
                if not offered:
                    raise next(t for t in found.values() if isinstance(t, Trouble))
                namer = self._namers.of(choose(offered))
                self._agreed = _Wire(
                    namer,
                    [Uploader(server, namer, self._cancel) for server in self._servers],
                    [Downloader(server, namer, self._cancel) for server in self._servers],
                    Watch(self._servers, self._cancel, self._note),
                )
                self._watch = self._agreed.watch
            return self._agreed

    @contextmanager
    def _asking(self) -> Iterator[tuple[int, _Wire]]:
        """The server whose turn it is; one that does not answer gives its turn to the next.

        Where it falls silent, or all is cancelled, its calls end.
        """
        wire_ = self._wire()
        turn = self._turn
        try:
            server = self._servers[turn]
            if wire_.function not in server.abilities().functions:
                # It was not there when the function was chosen; another may be.
                raise Trouble(server.host, "UNAVAILABLE", f"it has no {wire_.function.name}")
            with _watched(wire_.watch, server):
                yield turn, wire_
        except Trouble as trouble:
            if trouble.gone:
                self._turn = (turn + 1) % len(self._servers)
            raise

    def entry(self, key: Digest) -> Found | None:
        """The entry under a recipe's or an action's digest."""
        trouble: Trouble | None = None
        for _ in self._servers:
            try:
                with self._asking() as (turn, agreed):
                    return self._entry(turn, agreed, key)
            except Trouble as error:
                if error.code == "NOT_FOUND":
                    return None
                trouble = error
                if not error.gone:
                    break
        assert trouble is not None
        raise trouble.error()

    def _entry(self, turn: int, agreed: _Wire, key: Digest) -> Found:
        s, server = stubs(), self._servers[turn]
        action, _ = _key(agreed.function, key)
        result = server.call(
            server.actions.GetActionResult,
            s.re.GetActionResultRequest(
                instance_name=server.instance,
                action_digest=s.re.Digest(hash=action.hash, size_bytes=action.size),
                inline_stdout=True,
                digest_function=agreed.function.number,
            ),
        )
        data = result.stdout_raw
        if not data:
            blob = Blob(result.stdout_digest.hash, result.stdout_digest.size_bytes)
            data = agreed.down[turn].read(blob, MAX_SIZE)
        if len(data) > MAX_SIZE:
            raise lied(server.host, f"has an entry of {len(data)} bytes")
        trees = {
            row.path: Blob(row.tree_digest.hash, row.tree_digest.size_bytes)
            for row in result.output_directories
        }
        return Found(Entry.parse(data), trees)

    def take(self, found: Found) -> None:
        """Brings the trees of an entry's record into the store; see `EntryStore.take`."""
        for output, wanted in found.entry.record.outputs.items():
            if self._namers.content.contains(wanted):
                continue
            blob = found.trees.get(output)
            if blob is None:
                raise lied(self.name, f"has an entry without its output {output!r}")
            try:
                with self._asking() as (turn, agreed):
                    tree, _ = agreed.down[turn].tree(blob, LIMIT)
            except Trouble as trouble:
                raise trouble.error() from None
            if tree != wanted:
                name = found.entry.record.name
                raise lied(self.name, f"gave {tree} for {name}, whose record says {wanted}")

    def put(self, keys: Iterable[Digest], entry: Entry) -> None:
        """Stores trees first, then the entry under each key."""
        s = stubs()
        try:
            with self._asking() as (turn, agreed):
                server, function = self._servers[turn], agreed.function
                offers: dict[Blob, Source] = {}
                result = s.re.ActionResult(stdout_raw=entry.encode())
                trees: list[Digest] = []
                for output, digest in sorted(entry.record.outputs.items()):
                    message = _tree(agreed.namer, digest)
                    blob = function.blob(message)
                    offers[blob] = message
                    trees.append(digest)
                    result.output_directories.add(
                        path=output,
                        tree_digest=s.re.Digest(hash=blob.hash, size_bytes=blob.size),
                    )
                actions: list[Blob] = []
                for key in keys:
                    action, needed = _key(function, key)
                    offers.update(needed)
                    actions.append(action)
                agreed.up[turn].ensure(offers, trees)
                for action in actions:
                    request = s.re.UpdateActionResultRequest(
                        instance_name=server.instance,
                        action_digest=s.re.Digest(hash=action.hash, size_bytes=action.size),
                        action_result=result,
                        digest_function=function.number,
                    )
                    server.call(server.actions.UpdateActionResult, request)
                agreed.namer.flush()
        except Trouble as trouble:
            raise trouble.error() from None


@dataclass(frozen=True, slots=True)
class _Wire:
    """How all servers of an address are spoken with; transfers in the order of the servers."""

    namer: Namer
    up: list[Uploader]
    down: list[Downloader]
    watch: Watch

    @property
    def function(self) -> Function:
        """What names content there."""
        return self.namer.function


@dataclass(eq=False, slots=True)
class _Question:
    """Something asked of a server (watch.Asked)."""

    server: Server
    started: float = field(default_factory=time.monotonic)
    patient: bool = False
    reason: str = ""

    def give_up(self, reason: str) -> None:
        """Its calls end with the server's channel."""
        self.reason = reason


@contextmanager
def _watched(watch: Watch, server: Server) -> Iterator[None]:
    """Calls to a server that is looked after; a silent one's raise `Trouble` that says so."""
    question = _Question(server)
    watch.add(question)
    try:
        yield
    except Trouble as trouble:
        if not question.reason:
            raise
        raise Trouble(trouble.node, "UNAVAILABLE", question.reason) from None
    finally:
        watch.remove(question)


def _tree(namer: Namer, root: Digest) -> bytes:
    """The Tree message of a stored tree: every directory once."""
    seen: dict[Digest, bytes] = {}
    stack = [root]
    while stack:
        digest = stack.pop()
        if digest in seen:
            continue
        seen[digest] = namer.directory(digest)[1]
        stack += [e.digest for _, e in namer.tree(digest) if isinstance(e, Directory)]
    return wire.tree(seen.pop(root), seen.values())


def _key(function: Function, key: Digest) -> tuple[Blob, dict[Blob, Source]]:
    """The action that stands for a digest of ours, and what it is made of."""
    command = wire.command(("reprobuild", "cache-entry", "v0", key.hex), {}, "", (), {})
    empty = wire.directory((), (), ())
    action = wire.action(function.blob(command), function.blob(empty), 0, {})
    return function.blob(action), {function.blob(data): data for data in (command, empty, action)}
