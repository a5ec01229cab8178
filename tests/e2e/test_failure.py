"""Builds that go wrong: what is said, what is kept, what is cleaned."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from support.demo import Demo, needs_sandbox
from support.processes import running
from support.webserver import web_server

pytestmark = needs_sandbox


def leftovers(demo: Demo) -> list[Path]:
    return [*(demo.store / "build").iterdir(), *(demo.store / "tmp").iterdir()]


def test_shows_the_end_of_the_log_and_where_all_of_it_is(locked: Demo) -> None:
    locked.component("notes", "for i in 1 2 3; do echo line $i; done; echo to stderr >&2; exit 9")
    ran = locked.run("realize", "demo.notes", status=5)
    assert "notes.copy ended with status 9  [E-BUILD-FAILED]" in ran.err
    assert "    | line 3\n    | to stderr" in ran.err
    assert "`reprobuild log --installable demo.notes notes.copy`" in ran.err
    assert "`reprobuild shell demo.notes -d notes.copy`" in ran.err
    assert "to stderr" in locked.run("log", "notes.copy").out
    match = re.search(r"^  log: (.*)$", ran.err, re.MULTILINE)
    assert match is not None
    assert Path(match[1]).read_text() == "line 1\nline 2\nline 3\nto stderr\n"
    assert leftovers(locked) == []
    locked.verify()


def test_only_the_end_of_a_long_log(locked: Demo) -> None:
    locked.component("notes", "yes | head -n 100000; echo last; exit 1")
    error = locked.run("--json", "realize", "demo.notes", status=5).error
    assert error["facts"]["tail"][-1] == "last"
    assert len(error["facts"]["tail"]) == 25


def test_keep_failed_keeps_what_it_left(locked: Demo) -> None:
    locked.component("notes", "echo half > $out/half; exit 1")
    error = locked.run("--json", "realize", "--keep-failed", "demo.notes", status=5).error
    kept = Path(error["facts"]["kept"])
    assert (kept / "out/out/half").read_text() == "half\n"
    plain = locked.run("realize", "--keep-failed", "demo.notes", status=5).err
    assert re.search(rf"^  kept: {kept.parent}/failed-", plain, re.MULTILINE)
    assert len(leftovers(locked)) == 2
    locked.run("store", "gc")
    assert len(leftovers(locked)) == 2
    locked.verify()


def test_log_of_a_build_that_went_well(realized: Demo) -> None:
    assert realized.run("log", "header.strip").out == "stripping\n"


def test_an_empty_log_is_said_to_be_empty(locked: Demo) -> None:
    locked.component("notes", "echo text > $out/file")
    locked.run("realize", "demo.notes")
    (log,) = (locked.store / "logs").iterdir()
    os.mkfifo(log.with_name(log.name.rpartition("-")[0] + "-later.log"))  # nobody writes to it
    ran = locked.run("log", "notes.copy")
    assert ran.out == ""
    assert ran.err == "notes.copy was built, and said nothing: its log is empty\n"


def test_a_name_that_is_like_no_other_gets_no_guess(locked: Demo) -> None:
    hint = locked.run("--json", "log", "nonesuch", status=2).error["hint"]
    assert hint == "`reprobuild graph` lists them"
    assert "notes.copy" in locked.run("--json", "log", "notes.cpy", status=2).error["hint"]


def test_log_of_a_build_that_failed(locked: Demo) -> None:
    locked.component("notes", "echo why it failed; exit 1")
    locked.run("realize", "demo.notes", status=5)
    assert locked.run("log", "notes.copy").out == "why it failed\n"


def test_keep_going_makes_the_rest_and_names_every_failure(locked: Demo) -> None:
    locked.component("notes", "exit 1")
    locked.write(
        "derivations/program.toml",
        (locked.path / "derivations/program.toml").read_text().replace("echo compiled", "exit 2"),
    )
    error = locked.run("--json", "realize", "--keep-going", "--keep-failed", status=5).error
    assert error["code"] == "E-DEPENDENCY"
    kept = [line.partition(": ") for line in error["facts"]["kept"]]
    assert sorted(name for name, _, _ in kept) == ["notes.copy", "program.compile"]
    assert all((Path(place) / "out").is_dir() for _, _, place in kept)
    assert sorted(line.split(":")[0] for line in error["facts"]["failed"]) == [
        "notes.copy",
        "program.compile",
    ]
    assert locked.json("realize", "demo.header")["counts"]["built"] == 0


def test_what_was_made_before_a_failure_is_not_made_again(locked: Demo) -> None:
    good = (locked.path / "derivations/program.toml").read_text()
    locked.write("derivations/program.toml", good.replace("echo compiled", "exit 2"))
    locked.run("realize", "demo.program", status=5)
    locked.write("derivations/program.toml", good)
    counts = locked.json("realize", "demo.program")["counts"]
    assert (counts["built"], counts["fetched"]) == (1, 0)


@pytest.mark.parametrize(
    ("run", "limits", "code", "words"),
    [
        ("sleep 60", "timeout = 1", "E-BUILD-TIMEOUT", "longer than 1 s"),
        ("true", "", "E-BUILD-NO-OUTPUT", "left nothing in output 'out'"),
        (
            "busybox rmdir $out; echo x > $out",
            "",
            "E-BUILD-NO-OUTPUT",
            "left a file, and no directory, as output 'out'",
        ),
        (
            "busybox rmdir $out; busybox ln -s /tmp $out",
            "",
            "E-BUILD-NO-OUTPUT",
            "left no directory as output 'out'",
        ),
        ("kill -SEGV $$", "", "E-BUILD-FAILED", "signal 11"),
        ("cat /etc/shadow > $out/x", "", "E-BUILD-FAILED", "status 1"),
        ("echo x > /inputs/source/notes.txt", "", "E-BUILD-FAILED", "status"),
        ("/bin/busybox mknod $out/dev c 1 3", "", "E-BUILD-FAILED", "status"),
        ("/bin/busybox mkfifo $out/fifo", "", "E-OUTPUT-SPECIAL", "fifo"),
    ],
)
def test_stopped_with_a_clear_message(
    locked: Demo, run: str, limits: str, code: str, words: str
) -> None:
    locked.component("notes", run, limits=limits)
    error = locked.run("--json", "realize", "demo.notes", status=5).error
    assert error["code"] == code
    assert words in error["message"]
    assert "notes.copy" in str(error)
    assert leftovers(locked) == []
    locked.verify()


def test_no_network_not_even_this_machines_own(locked: Demo) -> None:
    with web_server() as web:
        web.put("/x", b"reached\n")
        locked.component("notes", f"/bin/busybox wget {web.url}/x -O $out/x")
        error = locked.run("--json", "realize", "demo.notes", status=5).error
        assert error["code"] == "E-BUILD-FAILED"
        assert web.seen == []


def test_setuid_is_dropped_or_refused(locked: Demo) -> None:
    locked.component("notes", "cp /bin/busybox $out/su; /bin/busybox chmod 4755 $out/su || true")
    path = Path(locked.json("realize", "demo.notes")["outputs"]["demo.notes"]["path"])
    assert (path / "su").stat().st_mode & 0o7777 == 0o555


def test_background_processes_end_with_the_build(locked: Demo) -> None:
    marker = "sleep 86397"
    locked.component("notes", f"{marker} & echo done > $out/x")
    locked.run("realize", "demo.notes")
    assert running(marker) == []
