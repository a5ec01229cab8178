"""Ctrl-C and SIGTERM in the middle of a build; a process that is killed outright."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

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
