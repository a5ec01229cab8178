"""The command against real servers: the same digests as here, and nothing built the second time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from reprobuild.adapters.remote import cluster as adapter
from reprobuild.adapters.remote.cluster import Cluster, Member, cache_url, url
from reprobuild.errors import ReprobuildError
from support.demo import Demo, make_demo, needs_sandbox
from support.remote import allow_remote, wait_until

pytestmark = needs_sandbox


class Trial:
    """A demo with a trial cluster of its own."""

    def __init__(self, home: Path, nodes: int = 2) -> None:
        self.demo: Demo = make_demo(home / "demo", home / "store")
        self.demo.env["XDG_STATE_HOME"] = str(home / "state")
        self.demo.env["XDG_CONFIG_HOME"] = str(home / "config")
        self.home = home
        allow_remote(self.demo)
        self.demo.run("lock")
        document = self.demo.json("cluster", "up", "--nodes", str(nodes))
        self.url, self.cache = document["url"], document["cache"]

    def realize(self, store: str, *words: str, **options: Any) -> dict[str, Any]:
        return self.demo.json("realize", *words, store=self.home / store, **options)

    def members(self) -> list[dict[str, Any]]:
        members: list[dict[str, Any]] = self.demo.json("cluster", "status")["members"]
        return members

    def records(self, store: str) -> list[dict[str, Any]]:
        files = (self.home / store / "records").rglob("*")
        return [json.loads(f.read_bytes()) for f in files if f.is_file()]

    def down(self) -> None:
        self.demo.run("cluster", "down", "--purge")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    trial = Trial(tmp_path_factory.mktemp("cluster"))
    yield trial
    trial.down()


def test_the_same_digests_as_here_and_then_nothing_to_build(trial: Trial) -> None:
    here = trial.realize("here")
    trial.demo.run("key", "generate")
    remote = ("--remote", trial.url, "--remote-cache", trial.cache)
    there = trial.realize("there", *remote, "--remote-cache-mode", "read-write", "--no-local")
    assert there["outputs"]["demo"]["tree"] == here["outputs"]["demo"]["tree"]
    assert there["image"] == here["image"]
    assert there["remote"]["executed"] == 3
    assert len(there["remote"]["nodes"]) == 2
    assert there["counts"]["built"] == here["counts"]["built"]
    assert there["outputs"]["demo"]["isolation"] == "remote", "as weak as what it was made of"
    ran = [r for r in trial.records("there") if any("ran on 127.0.0.1:" in n for n in r["notes"])]
    assert {r["name"] for r in ran} == {"header.strip", "program.compile", "notes.copy"}

    again = trial.realize("again", *remote)
    assert again["image"] == here["image"]
    assert again["counts"]["built"] == again["counts"]["fetched"] == 0
    assert again["remote_cache"]["taken"] == 1

    # with the servers' own action cache alone, what they ran is not run again
    third = trial.realize("third", "--remote", trial.url, "--no-local")
    assert third["image"] == here["image"]
    assert (third["remote"]["executed"], third["remote"]["cached"]) == (0, 3)


def test_what_was_made_there_does_not_pass_for_made_here(trial: Trial) -> None:
    trial.realize("weak", "--remote", trial.url, "--no-local")
    assert trial.realize("weak", "--isolation", "full")["counts"]["built"] >= 3
    kept = trial.realize("weak")
    assert kept["counts"]["built"] == 0


def test_checked_there_against_here(trial: Trial) -> None:
    trial.realize("checked")
    done = trial.realize("checked", "--check=closure", "--remote", trial.url)
    assert done["counts"]["checked"] >= 3
    assert done["remote"]["executed"] == 3, "a check takes no remembered result"


def test_another_result_there_is_not_reproducible_and_names_the_node(trial: Trial) -> None:
    trial.demo.component("notes", "cat /proc/sys/kernel/random/uuid > $out/uuid")
    trial.demo.run("lock")
    trial.realize("unsteady", "demo.notes")
    ran = trial.demo.run(
        *("--json", "realize", "demo.notes", "--check", "--remote", trial.url, "--no-local"),
        store=trial.home / "unsteady",
        status=6,
    )
    assert ran.error["code"] == "E-NOT-REPRODUCIBLE"
    assert "ran on 127.0.0.1:" in ran.error["facts"]["second_ran"]


def _fails_there(trial: Trial, script: str) -> dict[str, Any]:
    """The error of a build that nodes alone may run; it says on which one it ran."""
    trial.demo.component("notes", script)
    trial.demo.run("lock")
    words = ("--json", "realize", "demo.notes", "--remote", trial.url, "--no-local")
    error = trial.demo.run(*words, store=trial.home / "failing", status=5).error
    assert error["facts"]["node"].startswith("127.0.0.1:")
    return error


def test_a_build_that_fails_there_says_where_and_keeps_its_log(trial: Trial) -> None:
    error = _fails_there(trial, "echo went wrong; exit 3")
    assert error["code"] == "E-BUILD-FAILED"
    assert error["facts"]["tail"] == ["went wrong"]


def test_an_output_of_a_fifo_alone_says_that_such_are_left_out(trial: Trial) -> None:
    error = _fails_there(trial, "busybox mkfifo $out/f")
    assert error["code"] == "E-BUILD-NO-OUTPUT"
    assert "FIFOs" in error["message"]


def test_usage(trial: Trial) -> None:
    run = trial.demo.run
    for words in (
        ("realize", "--no-local"),
        ("realize", "--remote-jobs", "3"),
        ("realize", "--remote", "http://127.0.0.1:1"),
        ("realize", "--remote", trial.url, "--isolation", "full"),
    ):
        assert run("--json", *words, status=2).error["code"] == "E-USAGE"
    run("--offline", "realize", "--remote", trial.url, status=8, store=trial.home / "new")


def test_a_cluster_is_kept_and_ended(tmp_path: Path) -> None:
    trial = Trial(tmp_path, nodes=1)
    try:
        before = trial.members()
        assert [m["name"] for m in before] == ["hub", "node1"]
        assert all(m["alive"] for m in before)
        trial.demo.json("cluster", "up", "--nodes", "1")
        assert trial.members() == before, "what runs stays"
        assert trial.demo.json("cluster", "down")["ended"] == 2
        assert trial.members() == []
        assert trial.demo.json("cluster", "down")["ended"] == 0
    finally:
        trial.down()


def test_what_runs_stays_and_what_ended_comes_back_on_its_port(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    try:
        hub, one, two = cluster.up(2, 1)
        for ended in (two, hub):
            os.kill(ended.pid, signal.SIGKILL)
            wait_until(lambda ended=ended: not ended.alive())
            if ended is hub:
                assert (url(cluster.members()), cache_url(cluster.members())) == ("", "")
            else:
                assert url(cluster.members()) == f"grpc://{one.host}"
            now = cluster.up(2, 1)
            assert [m.host for m in now] == [hub.host, one.host, two.host]
            assert now[1] == one, "it was never touched"
            assert all(m.alive() for m in now)
            assert cluster.members() == now
        three = cluster.up(3, 2)
        assert three[:3] == now
        assert three[3].jobs == 2
        assert cluster.up(1, 1) == now[:2]
        assert not now[2].alive()
    finally:
        cluster.down(purge=True)
    assert not any(m.alive() for m in now)


def test_a_hub_whose_port_is_taken_gets_another_and_its_nodes_know(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    try:
        hub, one = cluster.up(1, 1)
        os.kill(hub.pid, signal.SIGKILL)
        wait_until(lambda: not hub.alive())
        with occupied(hub.port):
            now = cluster.up(1, 1)
        assert now[0].port != hub.port
        assert now[1].pid != one.pid
        assert now[1].port == one.port
        command = Path(f"/proc/{now[1].pid}/cmdline").read_bytes().split(b"\0")
        assert f"--cas-remote=http://{now[0].host}".encode() in command
    finally:
        cluster.down(purge=True)


def occupied(port: int) -> socket.socket:
    """Listens there, once those who did are gone altogether."""
    taken: list[socket.socket] = []

    def take() -> bool:
        with suppress(OSError):
            taken.append(socket.create_server(("127.0.0.1", port)))
        return bool(taken)

    wait_until(take)
    return taken[0]


def test_two_that_bring_it_up_at_once_have_the_same(tmp_path: Path) -> None:
    place = tmp_path / "state" / "cluster"
    both: list[list[Member]] = []
    threads = [
        threading.Thread(target=lambda: both.append(Cluster(place).up(1, 1))) for _ in range(3)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(both) == 3
        assert both[0] == both[1] == both[2] == Cluster(place).members()
        assert all(m.alive() for m in both[0])
    finally:
        Cluster(place).down(purge=True)


def test_one_that_hangs_is_said_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path / "cluster")
    try:
        hub, one = cluster.up(1, 1)
        os.kill(one.pid, signal.SIGSTOP)
        monkeypatch.setattr(adapter, "STARTING", 1.0)
        with pytest.raises(ReprobuildError, match="node1 does not answer") as caught:
            cluster.up(1, 1)
        assert caught.value.code == "E-CLUSTER"
        assert cluster.members() == [hub, one]
        assert hub.alive()
    finally:
        cluster.down(purge=True)
    assert not one.alive(), "a process that was stopped is ended all the same"


def test_what_is_stopped_is_not_built_on_there(trial: Trial) -> None:
    """The build sleeps for a number of seconds that nobody else does."""
    trial.demo.component("notes", "sleep 613; cp /inputs/source/*.txt $out/")
    trial.demo.run("lock")
    words = ("realize", "demo.notes", "--remote", trial.url, "--no-local")
    argv = trial.demo.argv(*words, store=trial.home / "stopped")
    environment = {**os.environ, **trial.demo.env}
    with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: sleeping("613"))
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    wait_until(lambda: not sleeping("613"))


def sleeping(seconds: str) -> bool:
    """Whether a process sleeps for that long."""
    wanted = f"sleep\0{seconds}\0".encode()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if place.read_bytes() == wanted:
                return True
    return False


def test_with_nobody_there_it_is_built_here_or_fails(tmp_path: Path) -> None:
    demo = make_demo(tmp_path / "demo", tmp_path / "store")
    allow_remote(demo)
    demo.run("lock")
    gone = ("--remote", "grpc://127.0.0.1:1")
    ran = demo.run("--json", "realize", *gone, timeout=100)
    assert ran.document["remote"]["executed"] == 0
    assert ran.counts["built"] > 3
