"""The shared cache: what is left there is found by others, and counts by who signed it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fakes.memory_store import MemoryStore
from fakes.reapi import Manners, Server
from fakes.world import glue, graph_of, step
from reprobuild.adapters.keys.keyring import signed_by
from reprobuild.adapters.remote.access import Access
from reprobuild.adapters.remote.cache import ActionCache
from reprobuild.adapters.remote.naming import Namers
from reprobuild.adapters.remote.server import Server as Client
from reprobuild.core.bundle.signing import only
from reprobuild.core.derivation import Derivation, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.core.remote.entry import Entry
from reprobuild.engine.remote_cache import EntryCache
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.remote import DictMemo, store_tree


class Key:
    """A signer."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.key = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


OURS, THEIRS = Key(), Key()


@dataclass
class Member:
    """Somebody with a store, who uses a server's cache."""

    server: Server
    writes: bool = False
    key: Key = OURS
    trusts: tuple[Key, ...] = (OURS,)
    store: MemoryStore = field(default_factory=MemoryStore)
    report: Recorder = field(default_factory=Recorder)

    def __post_init__(self) -> None:
        client = Client(self.server.host, "", Access(), secure=False)
        self.notes: list[str] = []
        self.cancel = threading.Event()
        self.far = ActionCache(
            [client], Namers(self.store, DictMemo()), self.cancel, self.notes.append
        )
        trust = only([k.key for k in self.trusts], signed_by)
        self.cache = EntryCache(
            self.far, self.store, trust, self.report, self.key if self.writes else None
        )

    def made(self, derivation: Derivation, action: Digest, **files: bytes) -> Record:
        tree = store_tree(self.store, files)
        return Record(action, derivation.digest, {"out": tree}, name=derivation.name, log="a.log")


@pytest.fixture(params=["SHA256", "BLAKE3"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(Manners(functions=(request.param,))).start()
    yield server
    server.stop()


STEP = step("a", glue("src"))
ACTION = Digest.of(b"an action")


def test_what_one_leaves_the_other_finds(server: Server) -> None:
    giver, taker = Member(server, writes=True), Member(server)
    record = giver.made(STEP, ACTION, file=b"made", other=b"x" * 2_000_000)
    giver.cache.offer(record)
    found = taker.cache.find(STEP, ACTION, Isolation.FULL)
    assert found == replace(record, log="")
    assert taker.store.contains(record.outputs["out"])
    assert taker.store.blobs == giver.store.blobs
    assert (giver.cache.given, taker.cache.taken) == (1, 1)


def test_by_recipe_it_is_found_with_nothing_below(server: Server) -> None:
    source = glue("src")
    below = step("below", source)
    top = step("top", below)
    graph = graph_of([source, below, top])
    giver, taker = Member(server, writes=True), Member(server)
    record = giver.made(top, ACTION, file=b"made")
    giver.cache.offer(record)
    taker.cache.prefetch(graph, [top.digest], Isolation.FULL)
    assert taker.store.realized(top.digest) == replace(record, log="")
    assert server.count("GetActionResult") == 1


def test_nobody_has_it(server: Server) -> None:
    assert Member(server).cache.find(STEP, ACTION, Isolation.FULL) is None


def test_who_only_reads_leaves_nothing(server: Server) -> None:
    reader = Member(server)
    reader.cache.offer(reader.made(STEP, ACTION, file=b"made"))
    assert server.results == {}
    assert server.calls == []


def test_a_stranger_does_not_count(server: Server) -> None:
    giver, taker = Member(server, writes=True, key=THEIRS), Member(server)
    giver.cache.offer(giver.made(STEP, ACTION, file=b"made"))
    assert taker.cache.find(STEP, ACTION, Isolation.FULL) is None
    assert taker.store.trees == {}, "nothing of it is even fetched"
    assert "no key that is trusted here" in taker.cache.notes[0]
    friend = Member(server, trusts=(OURS, THEIRS))
    assert friend.cache.find(STEP, ACTION, Isolation.FULL) is not None


def test_a_weaker_isolation_does_not_count(server: Server) -> None:
    giver, taker = Member(server, writes=True), Member(server)
    record = replace(giver.made(STEP, ACTION, file=b"made"), isolation=Isolation.REMOTE)
    giver.cache.offer(record)
    assert taker.cache.find(STEP, ACTION, Isolation.FULL) is None
    assert taker.cache.find(STEP, ACTION, Isolation.REMOTE) is not None


def forged(server: Server, change: Any) -> None:
    """Changes every entry of a server's."""
    for result in server.results.values():
        result.stdout_raw = change(result.stdout_raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b'"name":"a"', b'"name":"b"'),
        lambda data: data[:-5],
        lambda data: b"{}",
        lambda data: b"\xff" * 100,
        lambda data: b"x" * (2**20 + 1),
    ],
    ids=["another-name", "cut", "empty", "garbage", "huge"],
)
def test_a_forged_entry_counts_for_nothing(server: Server, change: Any) -> None:
    giver, taker = Member(server, writes=True), Member(server)
    giver.cache.offer(giver.made(STEP, ACTION, file=b"made"))
    forged(server, change)
    assert taker.cache.find(STEP, ACTION, Isolation.FULL) is None
    assert taker.store.trees == {}


def test_an_entry_of_another_action_under_this_ones_key(server: Server) -> None:
    giver, taker = Member(server, writes=True), Member(server)
    giver.cache.offer(giver.made(STEP, ACTION, file=b"made"))
    (entry,) = {r.stdout_raw for r in server.results.values()}
    other = Digest.of(b"another action")
    giver.far.put((other,), Entry.parse(entry))
    assert taker.cache.find(STEP, other, Isolation.FULL) is None
    assert "about something else" in taker.cache.notes[0]


@pytest.mark.parametrize("swap", [True, False])
def test_a_tree_that_the_record_does_not_speak_of(server: Server, swap: bool) -> None:
    giver, taker = Member(server, writes=True), Member(server)
    giver.cache.offer(giver.made(STEP, ACTION, file=b"made"))
    mine = server.results.copy()
    giver.cache.offer(giver.made(STEP, Digest.of(b"evil"), file=b"evil"))
    evil = next(r for r in server.results.values() if r not in mine.values())
    for result in mine.values():
        del result.output_directories[:]
        if swap:
            result.output_directories.extend(evil.output_directories)
    server.results = mine
    assert taker.cache.find(STEP, ACTION, Isolation.FULL) is None
    assert server.host in taker.cache.notes[0]


def test_content_that_is_gone_is_no_failure(server: Server) -> None:
    giver, taker = Member(server, writes=True), Member(server)
    giver.cache.offer(giver.made(STEP, ACTION, file=b"made"))
    server.blobs.clear()
    assert taker.cache.find(STEP, ACTION, Isolation.FULL) is None


def test_a_dead_server_is_let_be(server: Server) -> None:
    member = Member(server, writes=True)
    server.stop()
    record = member.made(STEP, ACTION, file=b"made")
    assert member.cache.find(STEP, ACTION, Isolation.FULL) is None
    member.cache.offer(record)
    assert len(member.cache.notes) == 1
    assert "is not asked any more" in member.cache.notes[0]


def test_a_failure_of_the_store_is_not_the_caches(server: Server) -> None:
    giver, taker = Member(server, writes=True), Member(server)
    giver.cache.offer(giver.made(STEP, ACTION, file=b"made"))

    def full(*_: object, **__: object) -> None:
        raise ReprobuildError("E-STORE-WRITE", "no room")

    taker.store.add_blob = full  # type: ignore[method-assign,assignment]
    with pytest.raises(ReprobuildError) as caught:
        taker.cache.find(STEP, ACTION, Isolation.FULL)
    assert caught.value.code == "E-STORE-WRITE"
