"""A server's action cache and content as a shared cache (engine.remote_cache.EntryStore).

Under which key: that of an action that nobody runs, `reprobuild cache-entry v0 DIGEST` with an
empty input root, where DIGEST is a recipe's or an action's. Its result holds the signed entry as
standard output and each output as a directory, so that a server which looks after what its results
refer to keeps the trees as long as the entry.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from reprobuild.adapters.remote.download import Downloader, lied
from reprobuild.adapters.remote.naming import Namer, Source
from reprobuild.adapters.remote.server import Server, Trouble
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.adapters.remote.upload import Uploader
from reprobuild.core.digest import Digest
from reprobuild.core.remote import wire
from reprobuild.core.remote.entry import MAX_SIZE, Entry, Found
from reprobuild.core.remote.wire import Blob
from reprobuild.core.tree import Directory

LIMIT = 2**40
"""Bytes of one output: what it must be is signed, so this only bounds a server's nonsense."""


class ActionCache:
    """One address; its servers are asked in turn when one falls silent."""

    def __init__(self, servers: list[Server], namer: Namer, cancel: threading.Event) -> None:
        self._servers, self._namer, self._cancel = servers, namer, cancel
        self._up = [Uploader(server, namer, cancel) for server in servers]
        self._down = [Downloader(server, namer, cancel) for server in servers]
        self._turn = 0

    @property
    def name(self) -> str:
        """For people."""
        return self._servers[self._turn].host

    def close(self) -> None:
        """Ends what is under way."""
        for parts in (self._up, self._down, self._servers):
            for part in parts:
                part.close()

    @contextmanager
    def _asking(self) -> Iterator[int]:
        """The server whose turn it is; one that does not answer gives its turn to the next."""
        turn = self._turn
        try:
            yield turn
        except Trouble as trouble:
            if trouble.gone:
                self._turn = (turn + 1) % len(self._servers)
            raise

    def entry(self, key: Digest) -> Found | None:
        """The entry under a recipe's or an action's digest."""
        trouble: Trouble | None = None
        for _ in self._servers:
            try:
                with self._asking() as turn:
                    return self._entry(self._servers[turn], key)
            except Trouble as error:
                if error.code == "NOT_FOUND":
                    return None
                trouble = error
                if not error.gone:
                    break
        assert trouble is not None
        raise trouble.error()

    def _entry(self, server: Server, key: Digest) -> Found:
        s = stubs()
        action, _ = _key(key)
        result = server.call(
            server.actions.GetActionResult,
            s.re.GetActionResultRequest(
                instance_name=server.instance,
                action_digest=s.re.Digest(hash=action.hash, size_bytes=action.size),
                inline_stdout=True,
            ),
        )
        data = result.stdout_raw
        if not data:
            blob = Blob(result.stdout_digest.hash, result.stdout_digest.size_bytes)
            data = self._down[self._turn].read(blob, MAX_SIZE)
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
            if self._namer.content.contains(wanted):
                continue
            blob = found.trees.get(output)
            if blob is None:
                raise lied(self.name, f"has an entry without its output {output!r}")
            try:
                with self._asking() as turn:
                    tree, _ = self._down[turn].tree(blob, LIMIT)
            except Trouble as trouble:
                raise trouble.error() from None
            if tree != wanted:
                name = found.entry.record.name
                raise lied(self.name, f"gave {tree} for {name}, whose record says {wanted}")

    def put(self, keys: Iterable[Digest], entry: Entry) -> None:
        """Stores trees first, then the entry under each key."""
        s = stubs()
        try:
            with self._asking() as turn:
                server = self._servers[turn]
                offers: dict[Blob, Source] = {}
                result = s.re.ActionResult(stdout_raw=entry.encode())
                trees: list[Digest] = []
                for output, digest in sorted(entry.record.outputs.items()):
                    message = self._tree(digest)
                    blob = Blob.of(message)
                    offers[blob] = message
                    trees.append(digest)
                    result.output_directories.add(
                        path=output,
                        tree_digest=s.re.Digest(hash=blob.hash, size_bytes=blob.size),
                    )
                actions: list[Blob] = []
                for key in keys:
                    action, needed = _key(key)
                    offers.update(needed)
                    actions.append(action)
                self._up[turn].ensure(offers, trees)
                for action in actions:
                    request = s.re.UpdateActionResultRequest(
                        instance_name=server.instance,
                        action_digest=s.re.Digest(hash=action.hash, size_bytes=action.size),
                        action_result=result,
                    )
                    server.call(server.actions.UpdateActionResult, request)
        except Trouble as trouble:
            raise trouble.error() from None
        self._namer.flush()

    def _tree(self, root: Digest) -> bytes:
        """The Tree message of a stored tree: every directory once."""
        seen: dict[Digest, bytes] = {}
        stack = [root]
        while stack:
            digest = stack.pop()
            if digest in seen:
                continue
            seen[digest] = self._namer.directory(digest)[1]
            stack += [e.digest for _, e in self._namer.tree(digest) if isinstance(e, Directory)]
        return wire.tree(seen.pop(root), seen.values())


def _key(key: Digest) -> tuple[Blob, dict[Blob, Source]]:
    """The action that stands for a digest of ours, and what it is made of."""
    command = wire.command(("reprobuild", "cache-entry", "v0", key.hex), {}, "", (), {})
    empty = wire.directory((), (), ())
    action = wire.action(Blob.of(command), Blob.of(empty), 0, {})
    return Blob.of(action), {
        Blob.of(command): command,
        Blob.of(empty): empty,
        Blob.of(action): action,
    }
