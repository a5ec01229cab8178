"""The interactive sandbox, on a terminal that the test plays the person at."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.core.derivation import Isolation
from reprobuild.core.sandboxenv import base_environment
from reprobuild.ports import BuildRequest, Mount
from sandboxkit import IDENTITIES, ORDINARY, Who, host_root, identity, needs_bubblewrap

pytestmark = [
    needs_bubblewrap,
    pytest.mark.skipif(not Path("/usr/bin/bash").exists(), reason="the host has no /usr/bin/bash"),
]


@pytest.fixture(params=IDENTITIES)
def who(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Who]:
    with identity(request.param, tmp_path) as found:
        yield found


class Person:
    """Types on a terminal on which `executor.shell` runs, and reads what it shows."""

    def __init__(
        self,
        who: Who,
        argv: tuple[str, ...],
        work: Path,
        grade: Isolation = Isolation.FULL,
    ) -> None:
        mounts = (*host_root(who.home), Mount("/build/in", who.home / "data"))
        request = BuildRequest("x", ("true",), base_environment(), "/build", mounts, (), work)
        self.shown = ""
        self.child, self.master = pty.fork()
        if self.child == 0:
            status = 99
            try:
                if who.name == "ordinary" and os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
                    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
                status = who.executor(grade).shell(request, argv)
            finally:
                os._exit(status)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, text: str) -> None:
        """Reads until `text` is shown; fails after 20 seconds."""
        deadline = time.monotonic() + 20
        while text not in self.shown:
            ready, _, _ = select.select([self.master], [], [], 1)
            assert time.monotonic() < deadline, self.shown
            if ready:
                try:
                    self.shown += os.read(self.master, 4096).decode(errors="replace")
                except OSError:
                    assert text in self.shown, self.shown

    def leave(self) -> int:
        """The status with which it ends by itself, within 20 seconds."""
        deadline = time.monotonic() + 20
        while not (ended := os.waitpid(self.child, os.WNOHANG))[0]:
            assert time.monotonic() < deadline, self.shown
            ready, _, _ = select.select([self.master], [], [], 0.05)
            with contextlib.suppress(OSError):
                if ready:
                    self.shown += os.read(self.master, 4096).decode(errors="replace")
        self.child = 0
        return os.waitstatus_to_exitcode(ended[1])

    def close(self) -> None:
        os.close(self.master)
        if self.child:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)


def test_a_shell_has_a_terminal_job_control_and_the_inputs(who: Who) -> None:
    (who.home / "data").write_text("an-input\n")
    work = who.home / "work"
    (work / "build").mkdir(parents=True)
    (work / "build" / "left").write_text("by-a-failed-build\n")
    who.give(who.home)
    # dash cannot hand the terminal back when it ends: its first process group is not of this
    # PID namespace. bash can.
    person = Person(who, ("bash", "--norc", "-i"), work)
    try:
        person.type("echo up-$((40+2))\n")
        person.wait_for("up-42")
        assert "job control turned off" not in person.shown
        person.type("cat in left; id -u; pwd\n")
        person.wait_for("an-input")
        person.wait_for("by-a-failed-build")
        person.type("sleep 600\n")
        time.sleep(0.3)
        person.type("\x03")  # the interrupt key ends the foreground job, not the shell
        person.type("echo still-$((1+1)); stty size\n")
        person.wait_for("still-2")
        person.type("exit 7\n")
        assert person.leave() == 7, person.shown
    finally:
        person.close()
    who.do(lambda: who.executor().discard(work))
    assert not work.exists()


def test_standard_input_from_a_file_is_relayed_to_its_end(who: Who) -> None:
    (who.home / "data").write_text("x")
    work = who.home / "work"
    who.give(who.home)
    person = Person(who, ("sh", "-c", "read line; echo got-$line; kill -TERM $$"), work)
    try:
        person.type("hello\n")
        person.wait_for("got-hello")
        assert person.leave() == 128 + 15
    finally:
        person.close()


def test_a_shell_without_a_sandbox(tmp_path: Path) -> None:
    with identity("root" if os.geteuid() == 0 else "ordinary", tmp_path) as who:
        (who.home / "data").write_text("x")
        work = who.home / "work"
        command = ("sh", "-c", 'read line; echo "got-$line-$(id -u)"; cat /build/in; exit 3')
        person = Person(who, command, work, Isolation.NONE)
        try:
            person.type("hello\n")
            person.wait_for(f"got-hello-{62000 if os.geteuid() == 0 else os.geteuid()}")
            assert person.leave() == 3
        finally:
            person.close()
        assert (work / "out").is_dir()
