"""`reprobuild image` as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprobuild.adapters.oci.layout import open_layout, read_layout
from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox


def test_inspect_verify_save(realized: Demo, tmp_path: Path) -> None:
    said = realized.run("--json", "realize").document["image"]
    for words in (["inspect"], ["verify", "demo"]):
        seen = realized.run("--json", "image", *words).document
        assert {key: seen[key] for key in said} == said
    target = tmp_path / "image.tar"
    name = "other/name:7"
    realized.run("image", "save", "demo", "-o", str(target), "--as", name)
    with open_layout(target) as files:
        facts = read_layout(files)
    assert (facts.reference, str(facts.config_digest)) == (name, said["config_digest"])
    seen = realized.run("--json", "image", "verify", f"file:{target}").document
    assert seen["manifest_digest"] == said["manifest_digest"]
    plain = realized.run("image", "inspect").out
    assert said["reference"] in plain
    assert said["layers"][0]["digest"] in plain


def test_load_where_there_is_no_daemon(realized: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    done = realized.run("--json", "image", "load", status=10)
    error = done.error
    assert error["code"] == "E-DOCKER-UNAVAILABLE"
    assert "image save" in error["hint"]


@pytest.mark.docker
def test_load(realized: Demo, docker_host: str) -> None:
    said = realized.run("--json", "realize").document["image"]
    seen = realized.run("--json", "image", "load", env={"DOCKER_HOST": docker_host}).document
    assert seen["reference"] == said["reference"]
    assert seen["image_id"] in (said["config_digest"], said["manifest_digest"])


def test_what_is_not_realized(locked: Demo) -> None:
    done = locked.run("--json", "image", "inspect", status=2)
    assert done.error["code"] == "E-NOT-REALIZED"


@pytest.mark.parametrize(
    ("side", "code", "status"),
    [
        ("demo.header", "E-USAGE", 2),
        ("nothing", "E-UNKNOWN-INSTALLABLE", 2),
        ("file:/nowhere", "E-IMAGE", 3),
        ("file:/etc/passwd", "E-IMAGE", 3),
    ],
)
def test_sides_that_are_off(realized: Demo, side: str, code: str, status: int) -> None:
    done = realized.run("--json", "image", "inspect", side, status=status)
    assert done.error["code"] == code


def test_a_labels_drv_leads_to_its_component(realized: Demo) -> None:
    """Who only has the image's labels finds the component, and what it is made of."""
    shown = realized.json("show", "demo")["outputs"]["demo"]
    labels = realized.json("image", "inspect")["labels"]
    for name, entry in shown["components"].items():
        (label,) = [v for k, v in labels.items() if k.endswith(f".{name}.drv")]
        assert label == entry["image_drv"] != entry["drv"]
        found = realized.json("show", label[:20])["found"]
        assert {"installable": f"demo.{name}", "role": "in images", "drv": label} in found
        assert realized.json("why", "demo", label)["component"] == name
        path = realized.json("why", f"demo.{name}", label)["path"]
        assert (path[0]["drv"], path[-1]["drv"]) == (label, entry["drv"])
    unknown = realized.run("--json", "show", "blake3:" + "0" * 64, status=2)
    assert unknown.error["code"] == "E-UNKNOWN-INSTALLABLE"
