"""A run with nothing to do: what it imports, what it writes, and what makes it look again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox

HEAVY = ("docker", "git", "grpc", "networkx", "pydantic", "tomlkit", "tomllib", "requests", "rich",
         "urllib3", "debian", "packaging", "subprocess", "concurrent.futures", "logging",
         "importlib.metadata")  # fmt: skip

DUMP = """
import sys
from reprobuild.cli.main import run
status = run(sys.argv[1:])
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


def modules(demo: Demo, *words: str) -> tuple[str, set[str]]:
    """What is printed by a call, and which modules it had imported in the end."""
    argv = demo.argv(*words)
    argv[argv.index("-c") + 1] = DUMP
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=demo.environment())
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("words", [(), ("demo.program",)])
def test_imports_nothing_heavy(realized: Demo, words: tuple[str, ...]) -> None:
    realized.run("realize", *words)
    out, loaded = modules(realized, "realize", *words)
    assert out.splitlines()[-1] == "nothing to do"
    assert loaded & {"click", "blake3"} == {"click", "blake3"}
    plain = subprocess.run(
        [sys.executable, "-c", "import click, sys; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {name for name in HEAVY if name in loaded} <= set(plain.stdout.split())
    ours = {name for name in loaded if name.startswith("reprobuild.")}
    assert not any(name.startswith("reprobuild.core.flake") for name in ours)


ENTRY = """
import atexit, sys
atexit.register(lambda: print("\\n".join(sorted(sys.modules)), file=sys.stderr))
from reprobuild.cli.entry import entry
entry()
"""


def through_entry(demo: Demo, *words: str) -> tuple[str, set[str]]:
    """The same by the console script's own way."""
    argv = demo.argv(*words)
    argv[argv.index("-c") + 1] = ENTRY
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=demo.environment())
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize(
    "words", [("realize",), ("realize", "demo.program"), ("--json", "realize", "demo")]
)
def test_the_console_script_answers_alike_and_without_click(
    realized: Demo, words: tuple[str, ...]
) -> None:
    realized.run(*words)
    long, _ = modules(realized, *words)
    short, loaded = through_entry(realized, *words)
    assert short == long
    # each of these takes a good part of what the whole answer takes
    assert not loaded & {"click", "pathlib", "typing", "dataclasses", "inspect", "threading"}


@pytest.mark.parametrize(
    "words", [("realize", "--dry-run"), ("--quiet", "show"), ("store", "roots")]
)
def test_all_else_goes_the_long_way(realized: Demo, words: tuple[str, ...]) -> None:
    long, _ = modules(realized, *words)
    short, loaded = through_entry(realized, *words)
    assert short == long
    assert "click" in loaded


def test_the_console_script_looks_again_when_something_moved(realized: Demo) -> None:
    realized.run("realize")
    touch_flake(realized)
    out, loaded = through_entry(realized, "realize")
    assert {"click", "pydantic"} <= loaded
    assert out.splitlines()[-1] == "nothing to do"


def test_the_other_way_is_heavy(realized: Demo) -> None:
    # what the test above would see if the memo were not used
    _, loaded = modules(realized, "realize", "--dry-run")
    assert "pydantic" in loaded


def snapshot(top: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino)
        for path in [top, *top.rglob("*")]
    }


def test_writes_nothing(realized: Demo) -> None:
    before = snapshot(realized.store) | snapshot(realized.path)
    assert "nothing to do" in realized.run("realize").out
    assert snapshot(realized.store) | snapshot(realized.path) == before


def lose_layout(demo: Demo) -> None:
    path = Path(demo.json("realize")["outputs"]["demo"]["path"])
    subprocess.run(["rm", "-rf", str(path)], check=True)


def lose_tree(demo: Demo) -> None:
    tree = demo.json("realize")["outputs"]["demo"]["tree"].removeprefix("blake3:")
    (demo.store / "trees" / tree[:2] / tree).unlink()


def touch_flake(demo: Demo) -> None:
    path = demo.path / "flake-like.toml"
    path.write_text(path.read_text() + "# a comment\n")


def touch_input(demo: Demo) -> None:
    os.utime(demo.path / "notes/notes.txt")


@pytest.mark.parametrize("change", [lose_layout, lose_tree, touch_flake, touch_input])
def test_looks_again_when_something_moved(realized: Demo, change: object) -> None:
    before = realized.json("realize")
    assert callable(change)
    change(realized)
    _, loaded = modules(realized, "realize")
    assert "pydantic" in loaded
    after = realized.json("realize")
    assert after["image"] == before["image"]
    assert after["outputs"] == before["outputs"]
    assert Path(after["outputs"]["demo"]["path"]).is_dir()
    realized.verify()


def test_another_wish_is_not_answered_by_the_memo(realized: Demo) -> None:
    realized.run("realize")
    _, loaded = modules(realized, "realize", "--isolation", "full")
    assert "pydantic" in loaded


def test_a_changed_source_is_seen_at_once(realized: Demo) -> None:
    realized.run("realize")
    (realized.path / "fixtures/header/main/other.txt").write_text("changed\n")
    assert realized.run("--json", "realize", status=4).error["code"] == "E-LOCK-STALE"


def test_a_copied_store_answers_with_its_own_paths(realized: Demo, tmp_path: Path) -> None:
    realized.run("realize", "demo.program")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(realized.store), str(copy)], check=True)
    for _ in range(2):  # the second is remembered
        document = realized.json("realize", "demo.program", store=copy)
        path = Path(document["outputs"]["demo.program"]["path"])
        assert path.is_relative_to(copy)
        assert path.is_dir()
        assert document["counts"]["built"] == 0
    first = realized.json("realize", "demo.program")
    assert Path(first["outputs"]["demo.program"]["path"]).is_relative_to(realized.store)
