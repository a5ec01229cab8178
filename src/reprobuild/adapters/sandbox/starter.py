"""A process that starts sandboxes for us: small, unprivileged, and held to a build's limits.

Without it every build pays for giving up root (setpriv), for its limits (prlimit), for a control
group of its own and for being moved there, which the kernel does only after a grace period. A
starter pays for all that once and then serves one build after another, one at a time. It stands
outside of every sandbox, in namespaces that no build can see.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprobuild.adapters.sandbox import spawned
from reprobuild.adapters.sandbox.spawned import ENDED, MESSAGE, READY, STARTED
from reprobuild.core.sandboxenv import UMASK

_START_SECONDS = 60
_KEPT = ("LD_LIBRARY_PATH", "PATH")
"""What of our environment the interpreter and setpriv may need; no build sees it."""


class StarterGoneError(Exception):
    """The starter is no more."""


class NoStarterError(StarterGoneError):
    """None can be had here."""


class Starter:
    """One such process; close it with `close`.

    `user` is the uid to become, None to stay who we are; `limits` are soft and hard resource
    limits by kind. Raises NoStarterError when no such process can be started here.
    """

    def __init__(self, user: int | None, limits: Mapping[int, tuple[int, int]]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        self.gone = False
        """Whether it was found dead."""
        bounds = [f"{kind}:{soft}:{hard}" for kind, (soft, hard) in limits.items()]
        prefix = [] if user is None else ["setpriv", "--inh-caps=-all", "--"]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*prefix, sys.executable, "-I", "-S", str(Path(spawned.__file__)),
                     str(theirs.fileno()), str(-1 if user is None else user), str(UMASK), *bounds],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={k: v for k, v in os.environ.items() if k in _KEPT},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            ours.close()
            raise NoStarterError(str(error)) from error
        try:
            ours.settimeout(_START_SECONDS)
            kind, _ = self._receive()
            assert kind == READY
            ours.settimeout(None)
        except StarterGoneError as error:
            self.close()
            raise NoStarterError(str(error)) from error
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def start(self, words: bytes, log: int, inherited: Sequence[int]) -> Child:
        """Starts a command; see spawned.py for `words` and the numbers of what it inherits.

        Raises OSError when the program cannot be started, StarterGoneError.
        """
        listing = os.memfd_create("reprobuild")
        try:
            with os.fdopen(os.dup(listing), "wb") as file:
                file.write(words)
            os.lseek(listing, 0, os.SEEK_SET)
            try:
                socket.send_fds(self._channel, [b"s"], [listing, log, *inherited])
            except OSError as error:
                self.gone = True
                raise StarterGoneError(str(error)) from error
        finally:
            os.close(listing)
        kind, value = self._receive()
        if kind != STARTED:
            raise OSError(value, os.strerror(value))
        return Child(self, value)

    def wait(self) -> int:
        """The wait status of the command; raises StarterGoneError."""
        kind, value = self._receive()
        assert kind == ENDED
        return value

    def _receive(self) -> tuple[int, int]:
        try:
            data = self._channel.recv(MESSAGE.size)
        except OSError as error:
            self.gone = True
            raise StarterGoneError(str(error)) from error
        if len(data) != MESSAGE.size:
            self.gone = True
            raise StarterGoneError("it has ended")
        kind, value = MESSAGE.unpack(data)
        return kind, value

    def close(self) -> None:
        """Ends it, and what it may have started; safe to call twice."""
        self._channel.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Child:
    """A command that a starter started; used as subprocess.Popen is."""

    def __init__(self, starter: Starter, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._starter = starter

    def wait(self) -> int:
        """Its exit status, -N for signal N; -9 as well when the starter itself was killed."""
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(self._starter.wait())
            except StarterGoneError:
                # It was killed for memory with all of its group, or by a person.
                self.returncode = -signal.SIGKILL
        return self.returncode
