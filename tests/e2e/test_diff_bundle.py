"""Bundles as release sides: read where they lie, and nothing of them is imported."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox

HEADS = 'heads = [{ number = 1, title = "Taken already" }, { number = 2, title = "One more line" }]'


@pytest.fixture(scope="module")
def pair(demo_template: Demo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with bundles of two releases (`old`, `new`: with all sources; `old-run`,
    `new-run`: what runs; `delta`: from old to new), their project and their store."""
    home = tmp_path_factory.mktemp("bundles")
    demo = demo_template.clone(home / "project", home / "store")
    subprocess.run(["cp", "-a", str(demo_template.store), str(demo.store)], check=True)
    demo.run("realize")
    _export(demo, home, "old")
    demo.run("inventory", "-o", str(home / "stock"))
    text = (demo.path / "flake-like.toml").read_text()
    assert HEADS in text
    demo.write("flake-like.toml", text.replace(HEADS, HEADS.partition(", {")[0] + "]"))
    demo.write("notes/notes.txt", "another note\n")
    demo.run("lock", "--update", "notes")
    demo.run("realize")
    _export(demo, home, "new")
    demo.run("export", "demo", "--no-sign", "--have", str(home / "stock"),
             "-o", str(home / "delta.bundle"))  # fmt: skip
    demo.run("export", "demo.notes", "demo.header", "--no-sign", "-o", str(home / "parts.bundle"))
    return home


def _export(demo: Demo, home: Path, name: str) -> None:
    words = ["--no-sign", "--no-tool", "--sources", "-o", str(home / f"{name}.bundle")]
    demo.run("export", "demo", *words)
    demo.run("export", "demo", "--no-sign", "-o", str(home / f"{name}-run.bundle"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Demo:
    """A directory without a project, whose store is not there."""
    (tmp_path / "nothing").mkdir()
    return Demo(tmp_path / "nothing", tmp_path / "store")


def side(pair: Path, name: str) -> str:
    return f"file:{pair}/{name}.bundle"


def told(report: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on where the sides were read."""
    keys = ("causes", "components", "inputs", "kernels", "labels", "release", "pull_requests")
    return {key: report[key] for key in keys}


def test_two_bundles_with_nothing_else_at_hand(pair: Path, elsewhere: Demo) -> None:
    report = elsewhere.json("diff", side(pair, "old"), side(pair, "new"))
    assert [c["kind"] for c in report["causes"]] == ["source", "path"]
    assert report["causes"][0]["title"] == "header: −#2"
    header = report["components"]["header"]
    assert [(f["path"], f["heads"]) for f in header["files"]["changed"]] == [("header.txt", [2])]
    assert header["files"]["changed"][0]["hunks"][0]["lines"][-1] == "-fourth"
    assert header["output"]["verdict"] == "unknown"  # only what the result is made of travels
    notes = report["components"]["notes"]["files"]["changed"]
    assert notes[0]["hunks"][0]["lines"] == ["-a note", "+another note"]
    assert report["layers"]["compared"] is True
    assert {la["component"] for la in report["layers"]["changed"]} >= {"header", "program"}
    assert report["derivations"]["outputs"]["changed"] > 5
    assert any("no trusted key" in note for note in report["notes"])
    assert not elsewhere.store.exists()
    assert list(elsewhere.path.iterdir()) == []


def test_a_bundle_says_what_its_installable_says(pair: Path) -> None:
    demo = Demo(pair / "project", pair / "store")
    carried = demo.json("diff", side(pair, "old"), side(pair, "new"))
    half = demo.json("diff", side(pair, "old"), "demo")
    assert told(half) == told(carried)
    same = demo.json("diff", side(pair, "new"), "demo")
    assert same["equal"] is True
    assert same["layers"]["changed"] == []


def test_bundles_of_what_runs(pair: Path, elsewhere: Demo) -> None:
    report = elsewhere.json("diff", side(pair, "old-run"), side(pair, "new-run"))
    assert [c["kind"] for c in report["causes"]] == ["source", "path"]
    assert report["layers"]["compared"] is True
    assert report["layers"]["bytes_to_pull"] > 0


def test_the_end_of_a_delta_is_compared_with_the_store_it_builds_on(pair: Path) -> None:
    demo = Demo(pair / "project", pair / "store")
    report = demo.json("diff", side(pair, "old"), side(pair, "delta"))
    assert [c["kind"] for c in report["causes"]] == ["source", "path"]


def test_a_delta_without_its_base_says_what_it_lacks(pair: Path, elsewhere: Demo) -> None:
    error = elsewhere.run(
        "--json", "diff", side(pair, "old"), side(pair, "delta"), status=3
    ).error  # fmt: skip
    assert error["code"] == "E-BUNDLE-INCOMPLETE"
    assert "import the bundle that it builds on" in error["hint"]


def test_of_several_installables_one_is_named(pair: Path, elsewhere: Demo) -> None:
    error = elsewhere.run(
        "--json", "diff", side(pair, "parts"), side(pair, "new"), status=3
    ).error  # fmt: skip
    assert error["code"] == "E-RELEASE-SIDE"
    assert "demo.header, demo.notes" in error["hint"]
    named = f"{side(pair, 'parts')}#demo.notes"
    report = elsewhere.json("diff", named, named)
    assert report["equal"] is True
    wrong = elsewhere.run("--json", "diff", f"{named}x", named, status=3).error
    assert "holds no 'demo.notesx'" in wrong["message"]


def test_ones_own_signature_leaves_no_note(pair: Path, tmp_path: Path) -> None:
    demo = Demo(pair / "project", pair / "store", {"HOME": str(tmp_path)})
    demo.run("key", "generate")
    signed = tmp_path / "signed.bundle"
    demo.run("export", "demo", "-o", str(signed))
    report = demo.json("diff", f"file:{signed}", "demo")
    assert not any("no trusted key" in note for note in report["notes"])


@pytest.mark.parametrize("place", ["pieces", "index", "cut"])
def test_a_bundle_that_was_changed_is_refused(
    pair: Path, elsewhere: Demo, tmp_path: Path, place: str
) -> None:
    bad = tmp_path / "bad.bundle"
    shutil.copyfile(pair / "old.bundle", bad)
    data = bytearray(bad.read_bytes())
    if place == "cut":
        bad.write_bytes(data[:1000] + data[1100:])
    else:
        start = _head(data) + 200 if place == "pieces" else _index(data) + 40
        data[start] ^= 1
        bad.write_bytes(data)
    error = elsewhere.run("--json", "diff", f"file:{bad}", side(pair, "new"), status=3).error
    assert error["code"] == "E-BUNDLE"


def _sizes(data: bytes | bytearray) -> list[int]:
    trailer = data[-96:]
    return [int.from_bytes(trailer[at : at + 8], "big") for at in range(16, 64, 8)]


def _head(data: bytes | bytearray) -> int:
    return _sizes(data)[0]


def _index(data: bytes | bytearray) -> int:
    return sum(_sizes(data)[:2])
