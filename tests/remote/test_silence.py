"""Servers that fall silent, or that wait for another one which did: noticed, said, and left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from fakes.memory_store import MemoryStore
from fakes.reapi import Manners, Server
from reprobuild.adapters.remote import agree, attempt, executor, nodes, watch
from reprobuild.adapters.remote.access import Access
from reprobuild.adapters.remote.cache import ActionCache
from reprobuild.adapters.remote.naming import Namers
from reprobuild.adapters.remote.nodes import Node, Nodes
from reprobuild.adapters.remote.server import Server as Client
from reprobuild.core.digest import Digest
from support.remote import Bench, BenchOf, DictMemo, benches, refused, wait_until


@pytest.fixture
def bench() -> Iterator[BenchOf]:
    with benches() as make:
        yield make


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions come soon, and need be answered soon."""
    monkeypatch.setattr(watch, "EVERY", 0.2)
    monkeypatch.setattr(watch, "ANSWER", 1.0)
    monkeypatch.setattr(watch, "CONTENT", 1.0)
    monkeypatch.setattr(attempt, "PING", 1.0)
    monkeypatch.setattr(executor, "PROBE", (1.0, 1.0))


def notes(b: Bench) -> str:
    return "\n".join(str(event["text"]) for event in b.report.named("note"))


# -- servers that answer, and do not reach their content -----------------------------------------


@pytest.mark.parametrize("upstream", ["gone", "stuck"])
def test_servers_without_their_upstream_are_lost_and_named(
    bench: BenchOf, hasty: None, upstream: str
) -> None:
    b = bench(Manners(upstream=upstream), Manners(upstream=upstream), patience=1.0)
    error = refused(lambda: b.run(b.action("x")), "E-REMOTE-LOST")
    for server in b.servers:
        assert f"{server.host}: " in error.message
        assert server.host in str(error.facts["node"])
    assert "does not reach its content" in error.message
    assert "does not reach its content" in notes(b)


@pytest.mark.parametrize("upstream", ["gone", "stuck"])
def test_one_without_its_upstream_is_left_for_another(
    bench: BenchOf, hasty: None, upstream: str
) -> None:
    b = bench(Manners(upstream=upstream), Manners(), patience=60.0)
    b.busy(1, 5)
    done = b.run(b.action("x"))
    assert b.made(done) == b"one\nx"
    assert done.node.endswith(b.servers[1].host)


def test_an_upstream_that_comes_back_is_waited_for(bench: BenchOf) -> None:
    b = bench(Manners(upstream="gone"), patience=60.0)
    threading.Timer(1.0, lambda: setattr(b.servers[0].manners, "upstream", "")).start()
    assert b.made(b.run(b.action("x"))) == b"one\nx"


def test_work_on_a_server_outlives_its_upstream_for_a_while(bench: BenchOf, hasty: None) -> None:
    b = bench(Manners(seconds=2.5), patience=60.0)
    server = b.servers[0]

    def outage() -> None:
        wait_until(lambda: server.ran)
        server.manners.upstream = "gone"
        wait_until(lambda: "does not reach its content" in notes(b))
        server.manners.upstream = ""

    thread = threading.Thread(target=outage)
    thread.start()
    done = b.run(b.action("x"))
    thread.join()
    assert b.made(done) == b"one\nx"
    assert (server.ran, done.attempts) == (["x"], 1)


def test_a_server_that_takes_nothing_on_is_lost_though_it_answers(bench: BenchOf) -> None:
    b = bench(Manners(unavailable=10**6), patience=1.0)
    assert "not now" in refused(lambda: b.run(b.action("x")), "E-REMOTE-LOST").message


def test_patience_counts_from_when_the_last_one_was_lost() -> None:
    now = [100.0]
    two = [Node(Client(f"h{i}:1", "", Access(), secure=False), most=4) for i in range(2)]
    all_ = Nodes(two, clock=lambda: now[0])
    all_.lost(two[0], "cut off")
    now[0] = 200.0
    assert all_.quiet() == 0.0
    all_.lost(two[1], "gone")
    now[0] = 203.0
    assert all_.quiet() == 3.0
    assert all_.troubles() == "h0:1: cut off; h1:1: gone"
    assert (all_.tells(), all_.tells()) == (True, False), "once"
    all_.took(two[0])
    assert all_.quiet() == 0.0
    assert all_.troubles() == "h1:1: gone"


# -- what people hear ----------------------------------------------------------------------------


def test_waiting_for_nobody_is_said(bench: BenchOf, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (agree, nodes):
        monkeypatch.setattr(room, "TELL", 0.2)
    b = bench(patience=2.0)
    b.servers[0].stop()
    refused(lambda: b.run(b.action("x")), "E-REMOTE-LOST")
    assert f"no server is of use yet ({b.servers[0].host}: " in notes(b)
    assert "; waited for up to " in notes(b)


def test_a_server_that_says_nothing_at_first_is_named(
    bench: BenchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agree, "TELL", 0.2)
    b = bench(Manners(frozen=True))
    threading.Timer(1.0, b.servers[0].thawed.set).start()
    assert b.made(b.run(b.action("x"))) == b"one\nx"
    assert f"{b.servers[0].host}: no answer yet" in notes(b)


# -- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", ["stuck", ""])
def test_stopping_waits_for_no_server(bench: BenchOf, upstream: str) -> None:
    """A call that is stuck would end after five minutes by itself."""
    b = bench(Manners(upstream=upstream, frozen=not upstream))
    started = time.monotonic()
    threading.Timer(0.5, b.cancel.set).start()
    assert b.run(b.action("x")).reason == "interrupted"
    assert time.monotonic() - started < 60


def test_what_is_stopped_here_is_stopped_there(bench: BenchOf) -> None:
    b = bench(Manners(seconds=3))
    server = b.servers[0]

    def stop() -> None:
        wait_until(lambda: server.ran)
        b.cancel.set()

    threading.Thread(target=stop).start()
    assert b.run(b.action("x")).reason == "interrupted"
    wait_until(lambda: server.stopped)
    assert server.stopped == list(server.operations)


def test_the_slower_of_two_is_told_to_stop(bench: BenchOf) -> None:
    b = bench(Manners(seconds=20), Manners())
    b.busy(1, 5)
    done = b.run(b.action("x", expected_ms=100))
    assert done.node.endswith(b.servers[1].host)
    wait_until(lambda: b.servers[0].stopped)
    assert b.servers[1].stopped == []


# -- shared caches -------------------------------------------------------------------------------


class Far:
    """A cache on a server that does as it is told."""

    def __init__(self) -> None:
        self.server = Server().start()
        self.notes: list[str] = []
        self.cancel = threading.Event()
        client = Client(self.server.host, "", Access(), secure=False)
        namers = Namers(MemoryStore(), DictMemo())
        self.cache = ActionCache([client], namers, self.cancel, self.notes.append)

    def ask(self) -> object:
        return self.cache.entry(Digest.of(b"some recipe"))


@pytest.fixture
def far() -> Iterator[Far]:
    far = Far()
    yield far
    far.cache.close()
    far.server.stop()


def test_a_cache_that_falls_silent_is_given_up(far: Far, hasty: None) -> None:
    assert far.ask() is None
    far.server.manners.frozen = True
    error = refused(far.ask, "E-REMOTE-LOST")
    assert "it does not answer" in error.message
    assert any("it is given up if that lasts" in note for note in far.notes)


def test_stopping_waits_for_no_cache(far: Far) -> None:
    assert far.ask() is None
    far.server.manners.frozen = True
    started = time.monotonic()
    threading.Timer(0.5, far.cancel.set).start()
    refused(far.ask, "E-REMOTE-LOST")
    assert time.monotonic() - started < 30, "a minute is the deadline of a call"


def test_a_server_that_was_closed_is_not_opened_again(far: Far) -> None:
    far.cache.close()
    refused(far.ask, "E-REMOTE-LOST")
    assert far.server.calls == []
