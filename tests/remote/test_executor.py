"""The executor against servers that do as they are told, by each digest function."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from fakes.reapi import Manners
from reprobuild.adapters.remote import attempt
from reprobuild.core.derivation import Hints
from support.remote import Bench, BenchOf, benches, refused, wait_until


@pytest.fixture(params=["SHA256", "BLAKE3"])
def bench(request: pytest.FixtureRequest) -> Iterator[BenchOf]:
    with benches(functions=(request.param,)) as make:
        yield make


# -- the way it should go -----------------------------------------------------------------------


def test_runs_an_action_and_names_what_comes(bench: BenchOf) -> None:
    b = bench()
    done = b.run(b.action("hello"))
    assert (done.reason, done.status, done.cached, done.attempts) == ("", 0, False, 1)
    assert b.made(done) == b"one\nhello"
    assert done.node == f"worker-7@{b.servers[0].host}"
    assert b.log == b"said something\n"
    assert done.notes == ()


def test_the_second_time_it_is_remembered(bench: BenchOf) -> None:
    b = bench()
    first = b.run(b.action("hello"))
    again = b.run(b.action("hello"))
    assert again.cached and again.node == ""
    assert again.outputs == first.outputs
    assert again.uploaded == 0
    assert b.servers[0].ran == ["hello"]


def test_a_fresh_run_takes_no_remembered_result(bench: BenchOf) -> None:
    b = bench()
    b.run(b.action("hello"))
    assert not b.run(b.action("hello", fresh=True)).cached
    assert b.servers[0].ran == ["hello", "hello"]


def test_only_what_is_new_is_sent_and_asked_about(bench: BenchOf) -> None:
    b = bench()
    b.run(b.action("one"))
    server = b.servers[0]
    before = server.received
    done = b.run(b.action("two"))
    assert server.received - before == done.uploaded < 1000
    assert server.count("FindMissingBlobs") == 2


def test_what_another_machine_sent_is_not_sent_again(bench: BenchOf) -> None:
    b = bench()
    b.run(b.action("one"))
    server = b.servers[0]
    other = Bench([server])
    try:
        assert other.run(other.action("one", fresh=True)).uploaded == 0
    finally:
        if other._executor is not None:
            other._executor.close()


def test_an_exit_status_and_a_signal_are_told_apart(bench: BenchOf) -> None:
    b = bench(Manners(status=3))
    assert (b.run(b.action("a")).reason, b.run(b.action("a")).status) == ("exit", 3)
    b = bench(Manners(status=137))
    done = b.run(b.action("a"))
    assert (done.reason, done.status) == ("signal", 9)


def test_several_outputs(bench: BenchOf) -> None:
    b = bench()
    done = b.run(b.action("x", outputs=("out", "dev")))
    assert set(done.outputs) == {"out", "dev"}
    assert b.made(done, "dev") == b"one\nx"


@pytest.mark.parametrize("zstd", [False, True])
def test_large_files_go_by_stream_both_ways(bench: BenchOf, zstd: bool) -> None:
    b = bench(Manners(zstd=zstd))
    big = bytes(range(256)) * 4 * 5000
    done = b.run(b.action("x", {"big": big}))
    assert b.made(done) == big + b"x"
    server = b.servers[0]
    assert server.count("Write") == 1
    assert server.count("Read") == 1
    assert (server.received < len(big)) is zstd


def test_small_batches_are_kept_to(bench: BenchOf) -> None:
    b = bench(Manners(batch=100_000))
    files = {f"f{i:02}": bytes([i]) * 9_000 for i in range(30)}
    done = b.run(b.action("x", files))
    assert b.made(done) == b"".join(files.values()) + b"x"
    assert b.servers[0].count("BatchUpdateBlobs") > 5


def test_many_at_once_send_each_blob_once(bench: BenchOf) -> None:
    b = bench()
    files = {f"f{i}": bytes([i]) * 100_000 for i in range(20)}
    actions = [b.action(f"word{i}", files) for i in range(8)]
    executor = b.executor
    done = []

    def one(i: int) -> None:
        import io

        done.append(executor.run(actions[i], io.BytesIO(), b.cancel))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 8
    assert b.servers[0].received < 20 * 100_000 + 8 * 4_000


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize(
    "manners", [Manners(), Manners(heeds_limits=False), Manners(broken_reads=1)]
)
def test_a_long_log_is_kept_up_to_a_limit_and_says_what_was_cut(
    bench: BenchOf, monkeypatch: pytest.MonkeyPatch, zstd: bool, manners: Manners
) -> None:
    limit = 2**20 + 5
    monkeypatch.setattr(attempt, "LOG_LIMIT", limit)
    said = b"".join(b"line %d\n" % i for i in range(300_000))
    b = bench(replace(manners, said=said, zstd=zstd))
    b.run(b.action("x"))
    head, mark = b.log[:limit], b.log[limit:]
    assert head == said[:limit]
    dropped = len(said) - limit
    words = f"the log was cut after {limit} bytes; {dropped} more were dropped"
    assert mark == f"\n[reprobuild: {words}]\n".encode()


def test_a_log_below_the_limit_is_whole(bench: BenchOf) -> None:
    said = b"word\n" * 400_000
    b = bench(Manners(said=said))
    b.run(b.action("x"))
    assert b.log == said


# -- servers that fail --------------------------------------------------------------------------


@pytest.mark.parametrize("drops", [1, 3])
def test_a_broken_stream_is_taken_up_and_nothing_runs_twice(bench: BenchOf, drops: int) -> None:
    b = bench(Manners(drops=drops))
    done = b.run(b.action("x"))
    assert b.made(done) == b"one\nx"
    server = b.servers[0]
    assert (server.ran, server.count("Execute")) == (["x"], 1)
    assert server.count("WaitExecution") == drops
    assert done.attempts == 1


def test_a_server_that_forgot_the_operation_is_asked_anew(bench: BenchOf) -> None:
    b = bench(Manners(drops=1))
    server = b.servers[0]
    server.operations = _Forgetful()
    done = b.run(b.action("x"))
    assert b.made(done) == b"one\nx"
    assert server.count("Execute") == 2


class _Forgetful(dict):  # type: ignore[type-arg]
    """Knows of no operation after it was begun."""

    def __contains__(self, name: object) -> bool:
        return False


def test_not_available_is_tried_on_another_server(bench: BenchOf) -> None:
    b = bench(Manners(unavailable=99), Manners())
    done = [b.run(b.action(f"x{i}")) for i in range(3)]
    assert all(d.node.endswith(b.servers[1].host) for d in done)
    assert b.servers[0].ran == []


def test_a_full_server_is_waited_for(bench: BenchOf) -> None:
    b = bench(Manners(refusals=3))
    done = b.run(b.action("x"))
    assert b.made(done) == b"one\nx"
    assert done.attempts == 4


def test_one_that_is_full_for_long_is_named(bench: BenchOf) -> None:
    b = bench(Manners(refusals=12))
    done = b.run(b.action("x"))
    assert b.made(done) == b"one\nx"
    (note,) = b.report.named("note")
    assert f"waits for {b.servers[0].host}: RESOURCE_EXHAUSTED: too much to do" in str(note["text"])


def test_content_that_was_thrown_away_is_sent_again(bench: BenchOf) -> None:
    b = bench(Manners(forgets=1))
    done = b.run(b.action("x"))
    assert b.made(done) == b"one\nx"
    assert b.servers[0].count("Execute") == 2


def test_streams_are_resumed_where_they_broke(bench: BenchOf) -> None:
    b = bench(Manners(broken_writes=1, broken_reads=1))
    big = bytes(range(256)) * 4 * 4000
    done = b.run(b.action("x", {"big": big}))
    assert b.made(done) == big + b"x"
    server = b.servers[0]
    assert (server.count("Write"), server.count("QueryWriteStatus"), server.count("Read")) == (
        2,
        1,
        2,
    )
    assert server.received < len(big) + 2**20


def test_nobody_there_is_an_error_that_says_so(bench: BenchOf) -> None:
    b = bench(patience=0.5)
    b.servers[0].stop()
    error = refused(lambda: b.run(b.action("x")), "E-REMOTE-LOST")
    assert b.servers[0].host in str(error)
    assert b.executor.slots() == 0


def test_a_server_that_comes_back_is_used_again(bench: BenchOf) -> None:
    b = bench(patience=20.0)
    server = b.servers[0]
    server.stop()
    threading.Timer(0.7, server.start).start()
    done = b.run(b.action("x"))
    assert b.made(done) == b"one\nx"


def test_a_server_that_dies_at_work_is_replaced(bench: BenchOf) -> None:
    b = bench(Manners(seconds=30), Manners())
    first, second = b.servers
    b.busy(1, 5)
    threading.Timer(0.5, first.stop).start()
    done = b.run(b.action("x"))
    assert done.node.endswith(second.host)
    assert done.attempts == 2


def test_a_failure_that_every_server_has_is_the_actions(bench: BenchOf) -> None:
    b = bench(Manners(error=(13, "cannot be staged")))
    error = refused(lambda: b.run(b.action("x")), "E-REMOTE")
    assert "cannot be staged" in error.message


def test_what_a_server_refuses_is_not_tried_again(bench: BenchOf) -> None:
    b = bench(Manners(error=(3, "no such platform")))
    error = refused(lambda: b.run(b.action("x")), "E-REMOTE")
    assert "no such platform" in error.message
    assert b.servers[0].count("Execute") == 1


def test_an_action_whose_time_is_up(bench: BenchOf) -> None:
    b = bench(Manners(error=(4, "")))
    done = b.run(b.action("x", hints=Hints(timeout=0)))
    assert done.reason == "timeout"


def test_a_slow_server_is_raced_by_another(bench: BenchOf) -> None:
    b = bench(Manners(seconds=30), Manners())
    b.busy(1, 5)
    started = time.monotonic()
    done = b.run(b.action("x", expected_ms=100))
    assert time.monotonic() - started < 20
    assert done.node.endswith(b.servers[1].host)
    assert any("was slow" in note for note in done.notes)
    wait_until(lambda: b.servers[0].ran == ["x"])


def test_no_race_without_a_second_server(bench: BenchOf) -> None:
    b = bench(Manners(seconds=2))
    done = b.run(b.action("x", expected_ms=100))
    assert done.attempts == 1
    assert b.servers[0].ran == ["x"]


def test_cancelling_ends_it(bench: BenchOf) -> None:
    b = bench(Manners(seconds=30))
    threading.Timer(0.5, b.cancel.set).start()
    started = time.monotonic()
    assert b.run(b.action("x")).reason == "interrupted"
    assert time.monotonic() - started < 15


# -- servers that lie ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manners",
    [
        Manners(lies=lambda data: data[:-1] + b"!"),
        Manners(lies=lambda data: data + b"more"),
        Manners(lies=lambda data: b""),
        Manners(garbage=True),
        Manners(loses=True),
    ],
    ids=["changes", "adds", "empties", "garbage", "loses"],
)
def test_false_content_is_noticed_and_made_elsewhere(bench: BenchOf, manners: Manners) -> None:
    b = bench(manners, Manners())
    b.busy(1, 50)
    liar, honest = b.servers
    done = b.run(b.action("x", fresh=True))
    assert b.made(done) == b"one\nx"
    assert done.node.endswith(honest.host)
    assert any(liar.host in note for note in done.notes)
    b.run(b.action("y"))
    assert liar.ran == ["x"], "a liar is not asked again"


def test_false_content_of_a_large_file_is_noticed(bench: BenchOf) -> None:
    b = bench(Manners(lies=lambda data: data[:-1] + b"!"), Manners())
    b.busy(1, 50)
    big = b"0123456789" * 100_000
    done = b.run(b.action("x", {"big": big}, fresh=True))
    assert b.made(done) == big + b"x"


def test_with_liars_alone_nothing_is_made(bench: BenchOf) -> None:
    b = bench(Manners(lies=lambda data: b"no" + data), Manners(garbage=True))
    error = refused(lambda: b.run(b.action("x", fresh=True)), "E-REMOTE-WORKER")
    for server in b.servers:
        assert server.host in error.message


def test_a_remembered_result_whose_content_is_gone_is_made_again(bench: BenchOf) -> None:
    b = bench()
    server = b.servers[0]
    first = b.run(b.action("x"))
    for key in server.outputs:
        del server.blobs[key]
    b.memo.known.clear()
    b.store.blobs.clear()
    again = b.run(b.action("x"))
    assert not again.cached
    assert again.outputs == first.outputs
    assert server.ran == ["x", "x"]


# -- workers that do not agree ------------------------------------------------------------------


def test_a_worker_whose_root_is_elsewhere_is_refused(bench: BenchOf) -> None:
    b = bench(Manners(launches=False))
    error = refused(lambda: b.run(b.action("x")), "E-REMOTE-WORKER")
    assert "not in the input root as `/`" in error.message
    assert "worker-7" in error.message or b.servers[0].host in error.message


@pytest.mark.parametrize("seen", ["refused uid 1000\n", "refused network eth0\n"])
def test_a_worker_that_the_launcher_refuses(bench: BenchOf, seen: str) -> None:
    b = bench(Manners(seen=seen, status=97), Manners())
    b.busy(1, 5)
    done = b.run(b.action("x"))
    assert done.node.endswith(b.servers[1].host)
    assert any(seen.split()[1] in note for note in done.notes)


def test_what_a_worker_shows_otherwise_is_noted(bench: BenchOf) -> None:
    b = bench(Manners(seen="hostname buildbox\nmtime 1321009871\n"))
    done = b.run(b.action("x"))
    assert [note.partition(" shows another ")[2] for note in done.notes] == [
        "hostname buildbox",
        "mtime 1321009871",
    ]


def test_a_server_without_execution(bench: BenchOf) -> None:
    b = bench(Manners(executes=False))
    refused(lambda: b.run(b.action("x")), "E-REMOTE-WORKER")


# -- what cannot go there -----------------------------------------------------------------------


def test_names_that_are_not_utf8_are_refused_with_their_place(bench: BenchOf) -> None:
    b = bench()
    action = b.action("x")
    from reprobuild.core.derivation import InputContent
    from reprobuild.core.tree import File, Tree

    blob = next(iter(b.store.blobs))
    bad = Tree.of({b"caf\xe9": File(blob, len(b.store.blobs[blob]))})
    b.store.add_trees({bad.digest: bad})
    action = replace(action, inputs=(*action.inputs, ("/opt/x", InputContent(bad.digest))))
    error = refused(lambda: b.run(action), "E-REMOTE-NAME")
    assert error.facts["path"] == "/opt/x"
    assert error.facts["name"] == "caf\\xe9"


def test_inputs_under_tmp_do_not_go_there(bench: BenchOf) -> None:
    b = bench()
    action = b.action("x")
    tree = action.inputs[1][1]
    error = refused(
        lambda: b.run(replace(action, inputs=(*action.inputs, ("/tmp/x", tree)))), "E-REMOTE-UNFIT"
    )
    assert "/tmp/x" in error.message
