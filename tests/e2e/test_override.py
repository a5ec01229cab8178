"""--override: a local checkout tried without touching the lock."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox


def checkout(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "notes.txt").write_text(text)
    return path


def test_what_depends_on_it_is_dirty_everywhere(realized: Demo, tmp_path: Path) -> None:
    clean = realized.json("realize")
    lock = (realized.path / "flake-like.lock").read_bytes()
    directory = checkout(tmp_path / "mine", "my note\n")
    dirty = realized.json("realize", "--override", f"notes=path:{directory}")
    assert dirty["outputs"]["demo"]["dirty"] == ["notes"]
    assert any("dirty" in name for name in dirty["image"]["labels"])
    assert not any("dirty" in name for name in clean["image"]["labels"])
    assert dirty["image"]["manifest_digest"] != clean["image"]["manifest_digest"]
    assert "dirty: notes" in realized.run("realize", "--override", f"notes=path:{directory}").out
    assert (realized.path / "flake-like.lock").read_bytes() == lock
    assert realized.json("realize") == {
        **clean,
        "counts": {**clean["counts"], "reused": 1},
    }


def test_what_does_not_depend_on_it_is_clean(realized: Demo, tmp_path: Path) -> None:
    directory = checkout(tmp_path / "mine", "my note\n")
    override = ("--override", f"notes=path:{directory}")
    program = realized.json("realize", "demo.program")["outputs"]["demo.program"]
    again = realized.json("realize", "demo.program", *override)["outputs"]["demo.program"]
    assert again["drv"] == program["drv"]
    mine = realized.json("realize", "demo.notes", *override)["outputs"]["demo.notes"]
    assert mine["dirty"] == ["notes"]
    assert (Path(mine["path"]) / "notes.txt").read_text() == "my note\n"


def test_in_a_git_checkout_only_what_git_knows_counts(realized: Demo, tmp_path: Path) -> None:
    directory = checkout(tmp_path / "mine", "my note\n")
    (directory / ".gitignore").write_text("*.log\n")
    (directory / "noise.log").write_text("noise\n")
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", "-C", str(directory), *words], check=True)
    override = ("--override", f"notes=path:{directory}")
    first = realized.json("realize", "demo.notes", *override)["outputs"]["demo.notes"]["drv"]
    (directory / "noise.log").write_text("more noise\n")
    assert realized.json("realize", "demo.notes", *override)["outputs"]["demo.notes"]["drv"] == (
        first
    )
    (directory / "notes.txt").write_text("uncommitted\n")
    assert realized.json("realize", "demo.notes", *override)["outputs"]["demo.notes"]["drv"] != (
        first
    )


def test_a_directory_that_is_not_there(realized: Demo, tmp_path: Path) -> None:
    ran = realized.run(
        "--json", "realize", "--override", f"notes=path:{tmp_path}/nowhere", status=None
    )
    assert ran.status in (2, 4)
    assert "nowhere" in ran.error["message"]
