"""Which digest function is spoken, and what follows for what is named, kept and believed."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from fakes.memory_store import MemoryStore
from fakes.reapi import NAMES, Manners, Server
from reprobuild.adapters.remote import agree
from reprobuild.adapters.remote.service import Remote
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.core.derivation import InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.core.remote.entry import Entry
from reprobuild.core.remote.function import BLAKE3, PREFERRED, SHA256, Function, common
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError
from reprobuild.ports import NullReporter
from support.remote import Bench, DictMemo, store_tree, wait_until

BenchOf = Callable[..., Bench]
BOTH = ("SHA256", "BLAKE3")


@pytest.fixture
def bench() -> Iterator[BenchOf]:
    made: list[Bench] = []

    def make(*manners: Manners, **options: Any) -> Bench:
        made.append(Bench([Server(m).start() for m in manners], **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def refused(b: Bench) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        b.run(b.action("x"))
    return caught.value


# -- the functions themselves -------------------------------------------------------------------


def test_numbers_and_names_are_the_apis() -> None:
    value = stubs().re.DigestFunction.Value
    assert [value.Name(f.number) for f in PREFERRED] == ["BLAKE3", "SHA256"]
    for name, function in (("SHA256", SHA256), ("BLAKE3", BLAKE3)):
        assert function.blob(b"abc").hash == NAMES[name](b"abc")
        assert function.blob(b"abc").size == 3
    assert (SHA256.segment, BLAKE3.segment) == ("", "blake3/")
    assert BLAKE3.blob(b"abc").hash == Digest.of(b"abc").hex


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [
        ([{SHA256}], SHA256),
        ([{BLAKE3}], BLAKE3),
        ([{SHA256, BLAKE3}], BLAKE3),
        ([{SHA256, BLAKE3}, {SHA256}], SHA256),
        ([{SHA256}, {BLAKE3}], None),
        ([{SHA256, BLAKE3}, set()], None),
    ],
)
def test_one_function_for_all(offered: list[set[Function]], wanted: Function | None) -> None:
    assert common({str(n): frozenset(row) for n, row in enumerate(offered)}) == wanted


# -- with servers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manners", "spoken"),
    [
        (Manners(functions=("SHA256",)), "SHA256"),
        (Manners(functions=("BLAKE3",)), "BLAKE3"),
        (Manners(functions=BOTH), "BLAKE3"),
        (Manners(functions=BOTH, runs=BOTH), "BLAKE3"),
        (Manners(functions=BOTH, runs=("SHA256",)), "SHA256"),
        (Manners(functions=BOTH, runs_one="SHA256"), "SHA256"),
        (Manners(functions=BOTH, runs=("BLAKE3",), runs_one="SHA256"), "BLAKE3"),
        (Manners(functions=("SHA256",), runs=BOTH), "SHA256"),
    ],
    ids=["sha256", "blake3", "both", "runs-both", "runs-sha256", "older-field", "both-fields",
         "content-sha256"],
)  # fmt: skip
def test_the_function_is_agreed_on(bench: BenchOf, manners: Manners, spoken: str) -> None:
    b = bench(manners)
    big = bytes(range(256)) * 4 * 4000
    done = b.run(b.action("x", {"big": big, "small": b"s"}))
    assert b.made(done) == big + b"sx"
    assert b.servers[0].spoken == {spoken}
    assert b.servers[0].count("Write") == b.servers[0].count("Read") == 1


@pytest.mark.parametrize(
    "manners", [Manners(functions=()), Manners(functions=("SHA256",), runs=("BLAKE3",))]
)
def test_a_server_with_neither_is_refused(bench: BenchOf, manners: Manners) -> None:
    b = bench(manners)
    error = refused(b)
    assert error.code == "E-REMOTE"
    assert "neither BLAKE3 nor SHA-256" in error.message
    assert b.servers[0].host in error.message
    assert b.servers[0].ran == []


def test_several_servers_have_one_function(bench: BenchOf) -> None:
    b = bench(Manners(functions=BOTH), Manners(functions=("SHA256",)))
    for i in range(4):
        b.run(b.action(f"x{i}"))
    assert [s.spoken for s in b.servers] == [{"SHA256"}, {"SHA256"}]
    assert all(s.ran for s in b.servers)


def test_servers_with_nothing_in_common_are_refused(bench: BenchOf) -> None:
    b = bench(Manners(functions=("BLAKE3",)), Manners(functions=("SHA256",)))
    error = refused(b)
    assert error.code == "E-REMOTE"
    for server, name in zip(b.servers, ("BLAKE3", "SHA-256"), strict=True):
        assert f"{server.host}: {name}" in error.message
    assert not any(s.ran for s in b.servers)


def test_a_server_that_comes_later_is_asked_only_in_the_function_of_the_run(
    bench: BenchOf,
) -> None:
    b = bench(Manners(functions=BOTH), Manners(functions=("SHA256",)))
    first, late = b.servers
    late.stop()
    assert b.made(b.run(b.action("x"))) == b"one\nx"
    late.start()
    wait_until(lambda: b._nodes[1].server.answers(1.0))
    b._nodes[1].until = 0.0
    b._nodes[0].done = 50  # so that the late one is asked
    done = b.run(b.action("y"))
    assert b.made(done) == b"one\ny"
    assert any(f"{late.host} is not asked any more: it has no BLAKE3" in n for n in done.notes)
    assert (first.spoken, set(late.calls)) == ({"BLAKE3"}, {"GetCapabilities"})


def test_who_waited_in_vain_does_not_wait_again(
    bench: BenchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench(Manners(), patience=0.7)
    b.servers[0].stop()
    asked: list[object] = []
    plain = agree.ask

    def ask(servers: Any, cancel: threading.Event, note: Any) -> Any:
        asked.append(servers)
        return plain(servers, cancel, note)

    monkeypatch.setattr(agree, "ask", ask)
    assert refused(b).code == "E-REMOTE-LOST"
    assert len(asked) == 2
    b._nodes[0].until += 1000  # however slow this machine is
    assert refused(b).code == "E-REMOTE-LOST"
    assert len(asked) == 2, "it is not due yet"
    b._nodes[0].until = 0.0
    assert refused(b).code == "E-REMOTE-LOST"
    assert len(asked) == 3


def test_who_is_due_again_is_asked_even_after_patience_ended(bench: BenchOf) -> None:
    b = bench(Manners(), patience=0.3)
    (server,) = b.servers
    server.stop()
    assert refused(b).code == "E-REMOTE-LOST"
    server.start()
    wait_until(lambda: b._nodes[0].server.answers(1.0))
    b._nodes[0].until = 0.0
    assert b.made(b.run(b.action("x"))) == b"one\nx"


def test_cancelling_ends_the_question(bench: BenchOf) -> None:
    b = bench(Manners())
    b.cancel.set()
    assert b.run(b.action("x")).reason == "interrupted"
    assert b.servers[0].ran == []


# -- what BLAKE3 means here ---------------------------------------------------------------------


def test_a_blob_has_one_name_here_and_there(bench: BenchOf) -> None:
    b = bench(Manners(functions=BOTH))
    done = b.run(b.action("x", {"deep/er/a": b"one", "deep/b*": b"two"}))
    server = b.servers[0]
    assert {Digest.of(data).hex for data in (b"one", b"two", b"#!shell")} <= set(server.blobs)
    ((_, entry),) = b.store.tree(done.outputs["out"])
    assert isinstance(entry, File)
    assert server.outputs == {entry.digest.hex}
    assert b.memo.known == {}, "there is nothing to remember"


def test_the_other_function_needs_the_memo(bench: BenchOf) -> None:
    b = bench(Manners(functions=("SHA256",)))
    b.run(b.action("x"))
    assert b.memo.known


@pytest.mark.parametrize("function", BOTH)
def test_a_file_as_an_input_whose_size_no_tree_says(bench: BenchOf, function: str) -> None:
    b = bench(Manners(functions=(function,)))
    action = b.action("x")
    file = b.store.add_blob(io.BytesIO(b"a file"))
    inputs = (*action.inputs, ("/in/z", InputContent(file.digest, is_file=True)))
    assert b.made(b.run(replace(action, inputs=inputs))) == b"one\na filex"


def test_nothing_is_read_to_be_named(bench: BenchOf, monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench(Manners(functions=("BLAKE3",)))
    action = b.action("x", {"a": b"one" * 100})
    b.run(action)
    opened: list[Digest] = []
    plain = b.store.open_blob

    def open_blob(digest: Digest) -> BinaryIO:
        opened.append(digest)
        return plain(digest)

    monkeypatch.setattr(b.store, "open_blob", open_blob)
    other = Bench(b.servers, b.store)
    try:
        done = other.run(other.action("y", {"a": b"one" * 100}))
    finally:
        if other._executor is not None:
            other._executor.close()
    assert done.uploaded < 1000
    made = next(e for _, e in b.store.tree(done.outputs["out"]) if isinstance(e, File))
    # what came was looked for, and that is all: inputs that are there are never opened
    assert set(opened) <= {made.digest}


def test_what_is_here_does_not_come_again(bench: BenchOf) -> None:
    b = bench(Manners(functions=("BLAKE3",)))
    big = bytes(range(256)) * 4 * 4000
    first = b.run(b.action("x", {"big": big}))
    again = b.run(b.action("x", {"big": big}, fresh=True))
    assert again.outputs == first.outputs
    assert again.downloaded < 1000 < first.downloaded
    assert b.servers[0].count("Read") == 1


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize("here", [False, True], ids=["comes", "is-here"])
@pytest.mark.parametrize("size", [100, 2_000_000])
def test_a_false_size_is_noticed(bench: BenchOf, function: str, here: bool, size: int) -> None:
    b = bench(Manners(functions=(function,), off=1), Manners(functions=(function,)))
    liar, honest = b.servers
    files = {"a": b"0123456789" * (size // 10)}
    if here:
        store_tree(b.store, {"file": files["a"] + b"x"})
    b.busy(1, 50)
    done = b.run(b.action("x", files, fresh=True))
    assert b.made(done) == files["a"] + b"x"
    assert done.node.endswith(honest.host)
    assert any(liar.host in note and "other content" in note for note in done.notes)


def test_false_content_is_in_no_tree(bench: BenchOf) -> None:
    b = bench(Manners(functions=("BLAKE3",), lies=lambda data: data[:-1] + b"!"))
    action = b.action("x", fresh=True)
    before = dict(b.store.trees)
    with pytest.raises(ReprobuildError) as caught:
        b.run(action)
    assert caught.value.code == "E-REMOTE-WORKER"
    assert b.store.trees == before
    assert all(Digest.of(data) == digest for digest, data in b.store.blobs.items())


# -- a shared cache -----------------------------------------------------------------------------


def caches(*servers: Server) -> tuple[Any, MemoryStore]:
    store = MemoryStore()
    remote = Remote(store, DictMemo(), {}, NullReporter(), threading.Event())
    return remote.cache("grpc://" + ",".join(s.host for s in servers)), store


def entry_of(store: MemoryStore) -> Entry:
    tree = store_tree(store, {"a": b"made", "below/b*": b"x" * 2_000_000})
    return Entry(Record(Digest.of(b"action"), Digest.of(b"drv"), {"out": tree}, name="a"))


@pytest.mark.parametrize(
    ("functions", "spoken"), [(("SHA256",), "SHA256"), (("BLAKE3",), "BLAKE3"), (BOTH, "BLAKE3")]
)
def test_a_cache_speaks_what_its_content_is_named_by(
    bench: BenchOf, functions: tuple[str, ...], spoken: str
) -> None:
    b = bench(Manners(functions=functions, runs=("SHA256",)))
    server = b.servers[0]
    giver, ours = caches(server)
    taker, theirs = caches(server)
    try:
        entry = entry_of(ours)
        giver.put([Digest.of(b"drv")], entry)
        found = taker.entry(Digest.of(b"drv"))
        assert found.entry == entry
        taker.take(found)
        assert theirs.blobs == ours.blobs
        assert theirs.contains(entry.record.outputs["out"])
        assert server.spoken == {spoken}
    finally:
        giver.close()
        taker.close()


def test_a_cache_of_several_servers(bench: BenchOf) -> None:
    b = bench(Manners(functions=BOTH), Manners(functions=("SHA256",)))
    cache, store = caches(*b.servers)
    cache.put([Digest.of(b"drv")], entry_of(store))
    assert b.servers[0].spoken == {"SHA256"}
    cache.close()
    b = bench(Manners(functions=("BLAKE3",)), Manners(functions=("SHA256",)))
    cache, store = caches(*b.servers)
    with pytest.raises(ReprobuildError) as caught:
        cache.entry(Digest.of(b"drv"))
    cache.close()
    assert caught.value.code == "E-REMOTE"
    assert "no digest function in common" in caught.value.message


def test_a_cache_whose_second_server_came_late(bench: BenchOf, tmp_path: Path) -> None:
    b = bench(Manners(functions=("BLAKE3",)), Manners(functions=("SHA256",)))
    first, late = b.servers
    late.stop()
    cache, store = caches(first, late)
    try:
        cache.put([Digest.of(b"drv")], entry_of(store))
        first.stop()
        late.start()
        with pytest.raises(ReprobuildError) as caught:
            cache.entry(Digest.of(b"drv"))
        assert caught.value.code == "E-REMOTE-LOST"
        assert late.spoken == set()
        late.stop()
        first.start()
        wait_until(lambda: cache._servers[0].answers(1.0))
        assert cache.entry(Digest.of(b"drv")) is not None
    finally:
        cache.close()
