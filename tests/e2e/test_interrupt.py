"""Ctrl-C and SIGTERM in the middle of a build; a process that is killed outright."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprobuild.cli.main import error_text
from reprobuild.errors import ReprobuildError
from support.demo import Demo, needs_sandbox
from support.processes import running

pytestmark = needs_sandbox

PATIENCE = 60


def begin(demo: Demo, marker: str) -> subprocess.Popen[str]:
    """Starts a build that lasts, and waits until it runs."""
    demo.component("notes", f"echo begun; {marker}; echo x > $out/x")
    process = demo.start("--json", "realize")
    deadline = time.monotonic() + PATIENCE
    while not running(marker):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stops_cleanly_and_goes_on_later(locked: Demo, number: signal.Signals) -> None:
    marker = f"sleep 864{number:02}"
    process = begin(locked, marker)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert '"E-INTERRUPTED"' in out
    assert "Traceback" not in err
    assert running(marker) == []
    assert list((locked.store / "build").iterdir()) == []
    locked.verify()
    locked.component("notes", "echo x > $out/x")
    answer = locked.json("realize")
    assert answer["counts"]["built"] > 0
    assert locked.run("realize").out.splitlines()[-1] == "nothing to do"


def test_stops_though_what_starts_builds_is_stopped(locked: Demo) -> None:
    marker = "sleep 86498"
    process = begin(locked, marker)
    below = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(pid) for path in below for pid in path.read_text().split()]
    starters = [pid for pid in children if b"spawned.py" in _words(pid)]
    for pid in starters:
        os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    try:
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert starters
    assert process.returncode == 130, err
    assert running(marker) == []
    locked.verify()


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_killed_outright(locked: Demo) -> None:
    marker = "sleep 86499"
    process = begin(locked, marker)
    process.kill()
    process.communicate(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while running(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(marker) == []
    locked.verify()
    locked.component("notes", "echo x > $out/x")
    locked.run("realize")
    locked.run("store", "gc")
    assert list((locked.store / "build").iterdir()) == []
    locked.verify()


def test_a_reader_that_goes_away(realized: Demo, tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            realized.argv("--json", "realize"),
            stdout=subprocess.PIPE,
            stderr=err,
            env=realized.environment(),
        )
        assert process.stdout is not None
        process.stdout.close()
        process.wait(PATIENCE)
    assert "Traceback" not in (tmp_path / "err").read_text()


# A program whose import of one module is when the signal comes.
EARLY = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == WHEN:
            os.kill(os.getpid(), signal.SIGINT)

WHEN = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
from reprobuild.cli.entry import entry
entry()
"""


@pytest.mark.parametrize("wants_json", [False, True])
@pytest.mark.parametrize(
    "module",
    ["reprobuild.app", "reprobuild.errors", "click", "reprobuild.cli.main",
     "reprobuild.cli.realize"],
)  # fmt: skip
def test_while_the_program_begins(tmp_path: Path, module: str, wants_json: bool) -> None:
    words = ["--json"] if wants_json else []
    argv = [sys.executable, "-c", EARLY, module, "-C", str(tmp_path), *words, "realize"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 130, done.stderr
    error = ReprobuildError("E-INTERRUPTED", "interrupted")
    if wants_json:
        assert json.loads(done.stdout) == error.as_document()
        assert done.stderr.strip() == ""
    else:
        assert done.stderr.lstrip() == error_text(error) + "\n"
        assert done.stdout == ""


def test_an_interrupt_that_is_ignored_stays_so(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", EARLY, "click", "--version"]
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=PATIENCE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("reprobuild ")
