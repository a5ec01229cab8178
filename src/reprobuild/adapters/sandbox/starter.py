"""A process that starts sandboxes for us: small, unprivileged, and held to a build's limits.

Without it every build pays for giving up root (setpriv), for its limits (prlimit), for a control
group of its own and for being moved there, which the kernel does only after a grace period. A
starter pays for all that once and then serves one build after another, one at a time. It stands
outside of every sandbox, in namespaces that no build can see. It also waits for what it started,
and says one word when nothing of that is left: every time this process is woken, its threads
contend for the interpreter.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from reprobuild.adapters.sandbox import spawned
from reprobuild.adapters.sandbox.spawned import ENDED, FAILED, MESSAGE, MOST_INLINE, READY, SLOW
from reprobuild.core.sandboxenv import UMASK
from reprobuild.errors import ReprobuildError

_START_SECONDS = 60
_GRACE_SECONDS = 2
"""How long it may stand still when it is to end a build."""
_TICK_MS = 100
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_KEPT = ("LD_LIBRARY_PATH", "PATH")
"""What of our environment the interpreter and setpriv may need; no build sees it."""


class StarterGoneError(Exception):
    """The starter is no more."""


class NoStarterError(StarterGoneError):
    """None can be had here."""


def memory_file(content: bytes) -> int:
    """A close-on-exec descriptor that reads `content` from its start, and that nobody changes."""
    descriptor = os.memfd_create("reprobuild", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Starter:
    """One such process; close it with `close`.

    `user` is the uid to become, None to stay who we are; `limits` are soft and hard resource
    limits by kind; `seccomp` is the filter that every command finds (spawned.py says where).
    Raises NoStarterError when no such process can be started here; not to `wait` leaves it to
    `await_ready`, which is to be called before the first `send`, to find that out.
    """

    def __init__(
        self,
        user: int | None,
        limits: Mapping[int, tuple[int, int]],
        seccomp: bytes = b"",
        *,
        wait: bool = True,
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        self.gone = False
        """Whether it was found dead."""
        bounds = [f"{kind}:{soft}:{hard}" for kind, (soft, hard) in limits.items()]
        prefix = [] if user is None else ["setpriv", "--inh-caps=-all", "--"]
        try:
            file = memory_file(seccomp)
        except OSError as error:
            ours.close()
            theirs.close()
            raise NoStarterError(str(error)) from error
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*prefix, sys.executable, "-I", "-S", str(Path(spawned.__file__)),
                     str(theirs.fileno()), str(file), str(-1 if user is None else user),
                     str(UMASK), *bounds],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={k: v for k, v in os.environ.items() if k in _KEPT},
                    pass_fds=(theirs.fileno(), file),
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            ours.close()
            raise NoStarterError(str(error)) from error
        finally:
            os.close(file)
        if wait:
            self.await_ready()

    def await_ready(self) -> None:
        """Waits until it can be sent to; closes it and raises NoStarterError where that fails."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        try:
            if not poll.poll(1000):  # it was stopped before it could say so
                self.wake()
            self._channel.settimeout(_START_SECONDS)
            assert self.receive()[0] == READY
            self._channel.settimeout(None)
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

    def fileno(self) -> int:
        """What becomes readable when there is something to `receive`."""
        return self._channel.fileno()

    def send(
        self,
        words: bytes,
        log: int,
        arguments: bytes = b"",
        directories: Sequence[tuple[int, str]] = (),
    ) -> None:
        """Has a command started; `words` are each ended by NUL. `arguments`, where there are any,
        it finds in a file (spawned.ARGUMENTS). `directories` are made first: modes and paths.
        Raises StarterGoneError."""
        first = "".join(f"{mode:o} {path}\0" for mode, path in directories)
        words = os.fsencode(first) + b"\0" + words
        message, files = spawned.START + words, [arguments] if arguments else []
        if len(message) > MOST_INLINE:
            message, files = spawned.START_BY_FILE, [words, *files]
        descriptors = [log]
        try:
            for content in files:
                descriptors.append(memory_file(content))
            self._send(message, descriptors)
        finally:
            for descriptor in descriptors[1:]:
                os.close(descriptor)

    def kill(self) -> None:
        """Has the command ended that runs. Raises StarterGoneError."""
        self._send(spawned.KILL, ())

    def _send(self, message: bytes, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._channel, [message], descriptors)
        except OSError as error:
            self.gone = True
            raise StarterGoneError(str(error)) from error

    def receive(self) -> tuple[int, int, int]:
        """Its next message (spawned.py); raises StarterGoneError."""
        try:
            data = self._channel.recv(MESSAGE.size)
        except OSError as error:
            self.gone = True
            raise StarterGoneError(str(error)) from error
        if len(data) != MESSAGE.size:
            self.gone = True
            raise StarterGoneError("it has ended")
        kind, value, code = MESSAGE.unpack(data)
        return kind, value, code

    def wake(self) -> None:
        """Has it go on where somebody stopped it (SIGSTOP): else it would heed nothing."""
        self._signal(signal.SIGCONT)

    def is_stopped(self) -> bool:
        """Whether somebody, or a debugger, has stopped it."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b")")[2].split()[0] in (b"T", b"t")

    def destroy(self) -> None:
        """Kills it; the kernel then kills what it started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:  # else the number may be another's
            with suppress(OSError):
                self._process.send_signal(number)

    def close(self) -> None:
        """Ends it, and what it may have started; safe to call twice."""
        self._channel.close()
        self.wake()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Child:
    """A build that a starter started and watches; `supervise.Followed`.

    `words`, `arguments` and `directories` are as in `Starter.send`. `orphaned` is called where the
    starter was killed before the build was over: it has to end what may be left. Raises
    StarterGoneError.
    """

    def __init__(
        self,
        starter: Starter,
        words: bytes,
        arguments: bytes = b"",
        directories: Sequence[tuple[int, str]] = (),
        orphaned: Callable[[], None] = lambda: None,
    ) -> None:
        self._starter = starter
        self._orphaned = orphaned
        self._program = os.fsdecode(words.partition(b"\0")[0])
        self._code: int | None = None
        self.returncode: int | None = None
        """The exit status of the program, -N for signal N, when it is over; -9 as well when the
        starter itself was killed, for memory with all of its group, or by a person."""
        self._killed: float | None = None
        """When it was to be ended."""
        self._died = 0
        self.log, write = os.pipe()
        try:
            starter.send(words, write, arguments, directories)
        except BaseException:
            os.close(self.log)
            raise
        finally:
            os.close(write)

    def alive(self) -> bool:
        """Whether something of it may still run."""
        if self.returncode is None and self._killed is not None:
            self._insist()
        return self.returncode is None

    def _insist(self) -> None:
        """Kills a starter that was to end the build, and is stopped again and again."""
        assert self._killed is not None
        if time.monotonic() - self._killed > _GRACE_SECONDS and self._starter.is_stopped():
            self._starter.destroy()

    def signs(self) -> tuple[int, ...]:
        """Descriptors that are readable when there is something to heed."""
        return (self._starter.fileno(),)

    def heed(self, sign: int) -> bool:
        """Takes in what there is; whether more may come."""
        self.settle()
        return False

    def settle(self) -> None:
        """Waits until nothing of it runs; raises E-SANDBOX-SETUP if nothing ever did."""
        if self.returncode is not None:
            return
        poll = select.poll()
        poll.register(self._starter, select.POLLIN)
        while self._killed is not None and not poll.poll(_TICK_MS):
            self._insist()
        try:
            kind, value, code = self._starter.receive()
        except StarterGoneError:
            self.returncode = -signal.SIGKILL
            self._code = 128 + signal.SIGKILL
            self._died = signal.SIGKILL
            self._orphaned()
            self._drain()
            return
        if kind == FAILED:
            self.returncode = -1
            what = "cannot be started" if code else "finds no place to work in"
            raise ReprobuildError(
                "E-SANDBOX-SETUP", f"{self._program} {what}: {os.strerror(value)}"
            )
        assert kind == ENDED
        self.returncode = os.waitstatus_to_exitcode(value)
        self._code = code if code >= 0 else None
        if code == SLOW:
            raise ReprobuildError(
                "E-SANDBOX-SETUP",
                f"{self._program} did not start within {spawned.START_SECONDS} seconds",
            )
        if code < 0 and self.returncode < 0:
            self._died = -self.returncode

    def _drain(self) -> None:
        """Waits until nobody has the log any more, as bubblewrap and process 1 have."""
        poll = select.poll()
        poll.register(self.log, 0)
        poll.poll(_START_SECONDS * 1000)

    def exit_code(self) -> int | None:
        """The command's status (128 + N for signal N); None when it was never known."""
        return self._code

    def died(self) -> int:
        """The signal that ended bubblewrap, or the starter, before the command was over; else 0."""
        return self._died

    def kill(self) -> None:
        """Ends every process of it; to be followed by `end`."""
        if self.returncode is None:
            if self._killed is None:
                self._killed = time.monotonic()
            try:
                self._starter.kill()
                self._starter.wake()
            except StarterGoneError:
                self.settle()

    def end(self) -> None:
        """Kills what is left, waits until nothing is, and closes the log."""
        try:
            self.kill()
            self.settle()
        finally:
            if self.log >= 0:
                os.close(self.log)
                self.log = -1
