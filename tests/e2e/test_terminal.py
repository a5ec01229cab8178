"""The terminal is as it was, however a run ends: well, badly, by Ctrl-C or by a signal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import time

import pytest

from support.demo import Demo, needs_sandbox
from support.processes import running

pytestmark = needs_sandbox

HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
PATIENCE = 60


class Terminal:
    """A pseudo-terminal, what was written to it, and what it is set to."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        self.text = b""

    def start(self, demo: Demo, *words: str) -> subprocess.Popen[bytes]:
        env = {**demo.environment(), "TERM": "xterm-256color"}
        return subprocess.Popen(
            demo.argv(*words),
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=env,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - one call, no lock
        )

    def read_until(self, process: subprocess.Popen[bytes], marker: str = "") -> None:
        """Takes what is written until the process ends, or `marker` runs."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if select.select([self.ours], [], [], 0.05)[0]:
                self.text += os.read(self.ours, 1 << 16)
            elif process.poll() is not None or (marker and HIDE in self.text and running(marker)):
                return
        raise AssertionError(self.text)

    def check(self) -> None:
        assert HIDE in self.text  # there was a live view
        assert self.text.rindex(SHOW) > self.text.rindex(HIDE)
        assert b"\x1b[?1049h" not in self.text  # nor another screen
        assert termios.tcgetattr(self.theirs) == self.before
        os.close(self.ours)
        os.close(self.theirs)


def _own_terminal() -> None:
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("run", "status"), [("echo x > $out/x", 0), ("echo why; exit 3", 5)], ids=["well", "badly"]
)
def test_after_the_end(locked: Demo, run: str, status: int) -> None:
    locked.component("notes", run)
    terminal = Terminal()
    process = terminal.start(locked, "realize", "demo.notes")
    terminal.read_until(process)
    assert process.wait(PATIENCE) == status
    terminal.check()


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM", "SIGHUP"])
def test_after_an_interruption(locked: Demo, how: str) -> None:
    marker = f"sleep 8646{len(how)}"
    locked.component("notes", f"{marker}; echo x > $out/x")
    terminal = Terminal()
    process = terminal.start(locked, "realize", "demo.notes")
    terminal.read_until(process, marker)
    if how == "ctrl-c":
        os.write(terminal.ours, b"\x03")
    else:
        process.send_signal(getattr(signal, how))
    terminal.read_until(process)
    assert process.wait(PATIENCE) == 130
    assert running(marker) == []
    terminal.check()
