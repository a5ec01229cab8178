"""The command against servers that build, by each digest function: the same digests as here."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from fakes.reapi import Manners
from fakes.reapi_worker import WorkingServer
from support.demo import Demo, make_demo, needs_sandbox
from support.remote import allow_remote

pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    home = tmp_path_factory.mktemp("builds")
    demo = make_demo(home / "demo", home / "here")
    demo.env["XDG_CONFIG_HOME"] = str(home / "config")
    allow_remote(demo)
    demo.run("lock")
    demo.run("key", "generate")
    return demo


@pytest.fixture(params=["SHA256", "BLAKE3"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[WorkingServer]]:
    """Two nodes over one store of content and results."""
    first = WorkingServer(Manners(functions=(request.param,)))
    second = WorkingServer(first.manners, first.blobs, first.results)
    for server in (first, second):
        server.start()
    yield [first, second]
    first.stop()
    second.stop()


def test_the_same_digests_as_here_and_then_nothing_to_build(
    demo: Demo, servers: list[WorkingServer], tmp_path: Path
) -> None:
    def realize(store: str, *words: str) -> dict[str, Any]:
        made: dict[str, Any] = demo.json("realize", *words, store=tmp_path / store)
        return made

    here = realize("here")
    hosts = ",".join(s.host for s in servers)
    remote = ("--remote", f"grpc://{hosts}", "--remote-cache", servers[0].url)
    there = realize("there", *remote, "--remote-cache-mode", "read-write", "--no-local")
    assert there["image"] == here["image"]
    assert there["outputs"]["demo"]["tree"] == here["outputs"]["demo"]["tree"]
    assert there["remote"]["executed"] == 3
    assert sum(len(s.ran) for s in servers) == 3
    spoken = servers[0].manners.functions[0]
    assert servers[0].spoken | servers[1].spoken == {spoken}
    memo = tmp_path / "there" / "cache" / "remote-sha256.sqlite"
    kept = _rows(memo)
    assert (kept > 0) is (spoken == "SHA256")

    idle = realize("there", "--isolation", "remote")
    assert idle["counts"]["built"] == 0
    assert not {"remote", "remote_cache"} & set(idle), "no server had a part in this run"

    again = realize("again", *remote)
    assert again["image"] == here["image"]
    assert again["counts"]["built"] == again["counts"]["fetched"] == 0
    assert again["remote_cache"]["taken"] == 1

    third = realize("third", "--remote", f"grpc://{hosts}", "--no-local")
    assert third["image"] == here["image"]
    assert (third["remote"]["executed"], third["remote"]["cached"]) == (0, 3)


def _rows(memo: Path) -> int:
    """How many names a memo keeps."""
    if not memo.exists():
        return 0
    with sqlite3.connect(memo) as database:
        tables = [
            name
            for (name,) in database.execute("select name from sqlite_master where type='table'")
        ]
        return sum(next(database.execute(f"select count(*) from {name}"))[0] for name in tables)
