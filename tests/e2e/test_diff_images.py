"""Sides in a registry and in a daemon: seen without their layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.demo import Demo, needs_sandbox
from support.registry import running

pytestmark = needs_sandbox


def test_an_image_in_a_registry(realized: Demo, tmp_path: Path) -> None:
    with running(tmp_path) as host:
        reference = f"{host}/team/demo:r1"
        realized.run("image", "push", "demo", "--to", reference)
        doc = realized.json("diff", f"registry:{reference}", "demo")
        assert [cause["title"] for cause in doc["causes"]] == []
        assert doc["layers"]["bytes_to_pull"] == 0
        assert len(doc["layers"]["kept"]) == 4
        realized.write("notes/notes.txt", "another note\n")
        realized.run("lock", "--update", "notes")
        realized.run("realize")
        doc = realized.json("diff", f"registry:{reference}", "demo")
        assert {la["component"] for la in doc["layers"]["changed"]} == {"notes", "statement"}
        assert doc["layers"]["bytes_to_pull"] == sum(la["size"] for la in doc["layers"]["changed"])
        assert doc["components"]["notes"]["output"]["verdict"] == "changed"
        assert len(doc["causes"]) == 1
        ran = realized.run("--json", "--offline", "diff", f"registry:{reference}", "demo", status=8)
        assert ran.error["code"].startswith("E-OFFLINE")
        ran = realized.run("--json", "diff", f"registry:{host}/team/none:x", "demo", status=None)
        assert ran.status in (4, 10)


@pytest.mark.docker
def test_an_image_in_a_daemon(realized: Demo, docker_host: str) -> None:
    realized.env["DOCKER_HOST"] = docker_host
    loaded = realized.json("image", "load", "demo")
    side = f"docker:{loaded['reference']}"
    doc = realized.json("diff", side, "demo")
    assert [cause["title"] for cause in doc["causes"]] == []
    assert len(doc["layers"]["kept"]) == 4
    assert doc["components"]["header"]["heads"]["kept"] == 2
    ran = realized.run("--json", "diff", "docker:no/such:image", "demo", status=3)
    assert ran.error["code"] == "E-IMAGE"
