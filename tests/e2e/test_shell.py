"""reprobuild shell: a command in a build's own sandbox."""

from __future__ import annotations

from pathlib import Path

from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox


def test_sees_the_inputs_and_nothing_else(realized: Demo) -> None:
    ran = realized.run(
        "shell", "demo.program", "--", "/bin/sh", "-c", "cat /inputs/header/header.txt"
    )
    assert ran.out == "first\nsecond\nthird\nfourth\n"
    ran = realized.run("shell", "demo.program", "--", "/bin/ls", "/inputs")
    assert ran.out.split() == ["header", "source"]
    ran = realized.run("shell", "demo.program", "--", "/bin/ls", "/home", status=None)
    assert ran.status != 0


def test_has_the_builds_command_and_status(realized: Demo) -> None:
    words = ("shell", "demo", "-d", "header.strip", "--", "/bin/sh", "-c")
    ran = realized.run(*words, 'echo "$REPROBUILD_COMMAND"; exit 7', status=7)
    assert "grep -v" in ran.out


def test_makes_inputs_that_are_missing(locked: Demo) -> None:
    ran = locked.run("shell", "demo.program", "--", "/bin/cat", "/inputs/header/header.txt")
    assert ran.out == "first\nsecond\nthird\nfourth\n"
    records = [p.name for p in (locked.store / "chosen").rglob("*") if p.is_file()]
    assert len(records) == 4  # box, program, the header's source, header.strip: not what uses them


def test_leaves_nothing(realized: Demo) -> None:
    realized.run("shell", "demo.program", "--", "/bin/sh", "-c", "echo x > /build/x; mkdir /tmp/d")
    assert list((realized.store / "build").iterdir()) == []
    realized.verify()


def test_what_is_made_without_a_sandbox(realized: Demo) -> None:
    ran = realized.run("--json", "shell", "demo", "-d", "demo.image", "--", "/bin/true", status=2)
    assert "no sandbox" in ran.error["message"]


def test_path_of_the_store_is_not_there(realized: Demo) -> None:
    ran = realized.run("shell", "demo.program", "--", "/bin/ls", str(Path("/tmp")), status=0)
    assert ran.out == ""
