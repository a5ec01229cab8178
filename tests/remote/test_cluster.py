"""The command against real servers: the same digests as here, and nothing built the second time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from support.demo import Demo, make_demo, needs_sandbox
from support.remote import allow_remote

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


def test_a_build_that_fails_there_says_where_and_keeps_its_log(trial: Trial) -> None:
    trial.demo.component("notes", "echo went wrong; exit 3")
    trial.demo.run("lock")
    words = ("--json", "realize", "demo.notes", "--remote", trial.url, "--no-local")
    ran = trial.demo.run(*words, store=trial.home / "failing", status=5)
    assert ran.error["code"] == "E-BUILD-FAILED"
    assert ran.error["facts"]["tail"] == ["went wrong"]
    assert ran.error["facts"]["node"].startswith("127.0.0.1:")


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


def test_with_nobody_there_it_is_built_here_or_fails(tmp_path: Path) -> None:
    demo = make_demo(tmp_path / "demo", tmp_path / "store")
    allow_remote(demo)
    demo.run("lock")
    gone = ("--remote", "grpc://127.0.0.1:1")
    ran = demo.run("--json", "realize", *gone, timeout=100)
    assert ran.document["remote"]["executed"] == 0
    assert ran.counts["built"] > 3
