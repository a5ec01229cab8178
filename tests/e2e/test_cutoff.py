"""What is rebuilt after a change, and what is not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox

ROOT = Path(__file__).resolve().parents[2]


def built(events: Path) -> set[str]:
    """The derivations that were built, or fetched, in a run."""
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return {line["name"] for line in lines if line.get("how") in ("built", "fetched")}


def test_a_changed_file_rebuilds_its_component_and_the_image(
    realized: Demo, tmp_path: Path
) -> None:
    before = realized.json("realize")
    realized.write("notes/notes.txt", "another note\n")
    realized.run("lock", "--update", "notes")
    after = realized.json("--events", str(tmp_path / "events"), "realize")
    assert built(tmp_path / "events") == {
        "inputs.notes",
        "notes.copy",
        "notes.layer-tree",
        "demo.notes.layer",
        "demo.statement",
        "demo.statement.layer",
        "demo.image",
    }
    assert after["image"]["manifest_digest"] != before["image"]["manifest_digest"]
    old, new = (
        {layer["component"]: layer["digest"] for layer in answer["image"]["layers"]}
        for answer in (before, after)
    )
    assert {name for name in old if old[name] != new[name]} == {"notes", "statement"}


def test_a_fixture_change_moves_its_pins_only(realized: Demo) -> None:
    before = realized.json("lock")["inputs"]
    realized.write("fixtures/header/pull-2/header.txt", "# the header\nfirst\nsecond\nthird\n5\n")
    stale = realized.run("--json", "realize", status=4).error
    assert stale["code"] == "E-LOCK-STALE"
    assert "lock --update header" in stale["hint"]
    document = realized.json("lock", "--update", "header")
    assert document["changed"]
    assert all("header" in name for name in document["changed"])
    after = document["inputs"]
    assert {n for n in before if before[n] != after[n]} <= {"header"}
    counts = realized.json("realize", "demo.program")["counts"]
    assert counts["built"] == 2
    assert counts["fetched"] == 1


def test_an_edit_of_a_directory_is_noticed_where_it_is_used(realized: Demo) -> None:
    realized.write("notes/notes.txt", "another note\n")
    for words in (("realize",), ("lock", "--check"), ("image", "inspect"), ("why", "demo", "demo")):
        stale = realized.run("--json", *words, status=4).error
        assert stale["code"] == "E-LOCK-STALE"
        assert stale["hint"] == "run `reprobuild lock --update notes`"
        assert stale["facts"]["input"] == "notes"
    assert realized.json("lock")["changed"] == ["inputs.notes"]
    assert realized.json("realize")["counts"]["built"] > 0


def test_a_stale_input_is_no_matter_of_an_output_without_it(realized: Demo) -> None:
    flake = (realized.path / "flake-like.toml").read_text()
    more = '\n[outputs.plain]\ncomponents = ["notes"]\ntoolchain = "box"\n'
    realized.write("flake-like.toml", flake + more)
    realized.run("lock")
    realized.write("fixtures/header/pull-2/header.txt", "other\n")
    realized.run("realize", "plain")
    shown = realized.json("show")["outputs"]
    assert "open" not in shown["plain"]
    assert "lock --update header" in shown["demo"]["open"]


def test_a_directory_that_is_gone_is_taken_from_the_store(realized: Demo) -> None:
    before = realized.json("realize")["image"]
    (realized.path / "notes").rename(realized.path / "elsewhere")
    assert realized.json("realize")["image"] == before
    assert realized.json("lock")["changed"] == []


@pytest.mark.parametrize("name", ["program", "fixtures/header"])
def test_a_link_out_of_the_project_is_refused(realized: Demo, tmp_path: Path, name: str) -> None:
    place = realized.path / name
    place.rename(tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    refused = realized.run("--json", "lock", status=3).error
    assert refused["code"] == "E-FLAKE"
    assert "is a symbolic link" in refused["message"]
    place.unlink()
    flake = (realized.path / "flake-like.toml").read_text()
    (realized.path / "link").symlink_to(tmp_path)
    realized.write("flake-like.toml", flake.replace(f'path = "{name}"', 'path = "link/outside"'))
    refused = realized.run("--json", "lock", status=3).error
    assert refused["code"] == "E-FLAKE"
    assert "out of the project" in refused["message"]


def test_a_comment_is_cut_off(realized: Demo, tmp_path: Path) -> None:
    before = realized.json("realize", "demo.program")
    text = "# the header\n# a comment\nfirst\nsecond\nthird\nfourth\n"
    realized.write("fixtures/header/pull-2/header.txt", text)
    realized.run("lock", "--update", "header")
    after = realized.json("--events", str(tmp_path / "events"), "realize", "demo.program")
    assert built(tmp_path / "events") == {"sources.header", "header.strip"}
    assert after["counts"]["cut_off"] == 1
    assert after["outputs"]["demo.program"]["drv"] != before["outputs"]["demo.program"]["drv"]
    assert after["outputs"]["demo.program"]["tree"] == before["outputs"]["demo.program"]["tree"]
    image = realized.json("--events", str(tmp_path / "more"), "realize")
    # the labels name another source, so the config differs; no layer but the statement's does
    assert built(tmp_path / "more") <= {"demo.statement", "demo.statement.layer", "demo.image"}
    assert image["counts"]["cut_off"] >= 3


def test_going_back_costs_nothing(realized: Demo, tmp_path: Path) -> None:
    before = realized.json("realize")
    original = (realized.path / "notes/notes.txt").read_text()
    for text in ("other\n", original):
        realized.write("notes/notes.txt", text)
        realized.run("lock", "--update", "notes")
        answer = realized.json("--events", str(tmp_path / text.strip()), "realize")
    assert answer["image"] == before["image"]
    assert built(tmp_path / original.strip()) == set()


@pytest.mark.slow
@pytest.mark.network
def test_a_comment_in_a_real_header_is_cut_off(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "project", tmp_path / "store")
    demo.path.mkdir()
    for name in ("flake-like.toml", "flake-like.lock"):
        shutil.copy(ROOT / name, demo.path)
    for name in ("derivations", "fixtures", "releases"):
        shutil.copytree(ROOT / name, demo.path / name)
    demo.env["HOME"] = os.environ["HOME"]  # pip's configuration names the index
    before = demo.json("realize", "quickstart.b12x", timeout=900)["outputs"]["quickstart.b12x"]
    header = demo.path / "fixtures/b12x/pull-40/csrc/b12x/e4m3.cuh"
    header.write_text(header.read_text() + "\n// one more comment\n")
    demo.run("lock", "--update", "b12x", timeout=300)
    after = demo.json("--events", str(tmp_path / "events"), "realize", "quickstart.b12x")
    assert after["outputs"]["quickstart.b12x"]["drv"] != before["drv"]
    assert after["outputs"]["quickstart.b12x"]["tree"] == before["tree"]
    assert after["counts"]["cut_off"] >= 1
    assert not any("link" in name for name in built(tmp_path / "events"))
