"""Starting bubblewrap so that nothing of the build runs before its limits hold.

A starter (starter.py) holds the limits itself, and watches. Where there is none, bubblewrap is
started with
`--block-fd`: its process 1 waits, already in its namespaces, until the limits are on it.
`--json-status-fd` names that process and later the command's exit status; its absence tells a
sandbox that could not be set up from a build that failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from reprobuild.adapters.sandbox.spawned import ARGUMENTS, FILTER, START_SECONDS, STATUS
from reprobuild.adapters.sandbox.starter import Child, Starter, memory_file
from reprobuild.core.sandboxenv import UMASK
from reprobuild.errors import ReprobuildError

_LIMITS = {
    resource.RLIMIT_CORE: (0, 0),
    resource.RLIMIT_NOFILE: (1024, 4096),
    resource.RLIMIT_STACK: (8 * 2**20, resource.RLIM_INFINITY),
}
_CAP_SYS_RESOURCE = 24
_MOST_WORDS = 2**16
"""Bytes of options; more go by a file, for there is a limit to what a call can hold."""


def process_limits(file_size: int) -> dict[int, tuple[int, int]]:
    """Soft and hard limits of every process of a build, by resource number.

    Constant as far as this process's own hard limits allow. Never RLIMIT_AS: nvcc reserves far
    more address space than it uses.
    """
    out: dict[int, tuple[int, int]] = {}
    for kind, wanted in {**_LIMITS, resource.RLIMIT_FSIZE: (file_size, file_size)}.items():
        soft, hard = wanted
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            hard = most if hard == resource.RLIM_INFINITY else min(hard, most)
            soft = min(soft, hard)
        out[kind] = (soft, hard)
    return out


def may_limit_others() -> bool:
    """Whether root here may set another user's limits (many containers withhold it)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def limiting_prefix(file_size: int) -> list[str]:
    """The prefix that sets the limits from within, where `Running.limit` may not."""
    names = {
        resource.RLIMIT_CORE: "core",
        resource.RLIMIT_NOFILE: "nofile",
        resource.RLIMIT_STACK: "stack",
        resource.RLIMIT_FSIZE: "fsize",
    }
    words = ["prlimit"]
    for kind, limits in process_limits(file_size).items():
        soft, hard = ("unlimited" if n == resource.RLIM_INFINITY else str(n) for n in limits)
        words.append(f"--{names[kind]}={soft}:{hard}")
    return [*words, "--"]


def encode_arguments(options: Sequence[str]) -> bytes:
    """What `bwrap --args FD` reads: every word ended by NUL."""
    return os.fsencode("\0".join((*options, "")))


@dataclass(frozen=True, slots=True)
class SandboxWords:
    """What to run: `options` makes bubblewrap's options out of the descriptor numbers of the
    filter, the status stream and the start signal."""

    argv: Sequence[str]
    seccomp: bytes
    options: Callable[[int, int, int], Sequence[str]]
    directories: Sequence[tuple[int, str]] = ()
    """What a starter makes first: modes and paths."""


class Process(Protocol):
    """What is asked of a started process."""

    pid: int
    returncode: int | None

    def wait(self) -> int:
        """Its exit status, -N for signal N."""
        ...


@dataclass(slots=True)
class Running:
    """A started sandbox. `init` is its process 1 as this host numbers it, `pidfd` a handle on it.

    `log` reads what it prints; `status` reads bubblewrap's own report. Close with `end`.
    """

    process: Process
    log: int
    status: int
    release: int
    init: int = -1
    pidfd: int = -1
    _report: bytearray = field(default_factory=bytearray)
    _over: bool = False

    def await_init(self) -> bool:
        """Waits for process 1 to stand; False when bubblewrap gave up before."""
        poll = select.poll()
        poll.register(self.status, select.POLLIN)
        while b"\n" not in self._report:
            if not poll.poll(START_SECONDS * 1000):
                raise ReprobuildError(
                    "E-SANDBOX-SETUP", f"bubblewrap did not start within {START_SECONDS} seconds"
                )
            if not self.read_status():
                return False
        self.init = int(json.loads(self._report.split(b"\n")[0])["child-pid"])
        try:
            self.pidfd = os.pidfd_open(self.init)
        except ProcessLookupError:  # it has failed and been reaped already
            return False
        return True

    def limit(self, file_size: int) -> None:
        """Puts the per-process limits on process 1; all that it starts inherits them."""
        for kind, limits in process_limits(file_size).items():
            with contextlib.suppress(ProcessLookupError):  # `supervise` will see that it is gone
                resource.prlimit(self.init, kind, limits)

    def go(self) -> None:
        """Lets the command start, which waits."""
        with contextlib.suppress(BrokenPipeError):  # it failed to set up, and is gone
            os.write(self.release, b"\n")
        self._close("release")

    def alive(self) -> bool:
        """Whether process 1 may still run."""
        return not self._over

    def signs(self) -> tuple[int, ...]:
        """Descriptors that are readable when there is something to heed."""
        return (self.status, self.pidfd)

    def heed(self, sign: int) -> bool:
        """Takes in what there is; whether more may come."""
        if sign == self.pidfd:
            self._over = True
            return False
        if self.read_status():
            return True
        # The command is over; what it left in the background goes with it.
        self.kill()
        return False

    def settle(self) -> None:
        """Takes in the last of the report, when process 1 is no more."""
        self.process.wait()
        while self.read_status():
            pass

    def read_status(self) -> bool:
        """Takes in what bubblewrap reports; False at the end of its report."""
        data = os.read(self.status, 4096)
        self._report += data
        return bool(data)

    def exit_code(self) -> int | None:
        """The command's status (128 + N for signal N); None when it was never known."""
        for line in self._report.split(b"\n")[1:]:
            if line.strip():
                with contextlib.suppress(ValueError, KeyError):
                    return int(json.loads(line)["exit-code"])
        return None

    def died(self) -> int:
        """The signal that ended bubblewrap before the command was over; else 0."""
        code = self.process.returncode or 0
        return -code if code < 0 and self.exit_code() is None else 0

    def kill(self) -> None:
        """Ends every process of the sandbox; to be followed by `end`."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kills what is left, waits until nothing is, and closes the descriptors.

        When process 1 of a PID namespace is dead, the kernel has ended all others in it.
        """
        self.kill()
        self.process.wait()
        if self.pidfd >= 0:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            poll.poll()
        for name in ("log", "status", "release", "pidfd"):
            self._close(name)

    def _close(self, name: str) -> None:
        descriptor = getattr(self, name)
        if descriptor >= 0:
            setattr(self, name, -1)
            os.close(descriptor)


def start(prefix: Sequence[str], bwrap: str, words: SandboxWords) -> Running:
    """Starts `prefix bwrap …`; the command waits until `go`.

    Raises E-SANDBOX-SETUP when a program of the call cannot be started at all.
    """
    opened: list[int] = []
    try:
        seccomp = memory_file(words.seccomp)
        opened.append(seccomp)
        status_read, status_write = os.pipe()
        opened += (status_read, status_write)
        block_read, block_write = os.pipe()
        opened += (block_read, block_write)
        log_read, log_write = os.pipe()
        opened += (log_read, log_write)
        options = words.options(seccomp, status_write, block_read)
        arguments = memory_file(encode_arguments(options))
        opened.append(arguments)
        try:
            process = subprocess.Popen(
                [*prefix, bwrap, "--args", str(arguments), "--", *words.argv],
                stdin=subprocess.DEVNULL,
                stdout=log_write,
                stderr=log_write,
                pass_fds=(seccomp, status_write, block_read, arguments),
                env={"PATH": os.defpath, "LC_ALL": "C"},
                umask=UMASK,
                start_new_session=True,
            )
        except OSError as error:
            raise ReprobuildError(
                "E-SANDBOX-SETUP",
                f"{[*prefix, bwrap][0]} cannot be started: {error.strerror}",
            ) from error
        kept = (status_read, block_write, log_read)
        opened = [descriptor for descriptor in opened if descriptor not in kept]
        return Running(process, log_read, status_read, block_write)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def start_by(
    starter: Starter, bwrap: str, words: SandboxWords, orphaned: Callable[[], None]
) -> Child:
    """Starts `bwrap …` by a process that holds the limits; the command begins at once.

    `orphaned` ends what is left of it where that process is killed. Raises StarterGoneError.
    """
    options = encode_arguments(words.options(FILTER, STATUS, -1))
    command = encode_arguments(("--", *words.argv))
    directories = words.directories
    if len(options) < _MOST_WORDS:
        first = encode_arguments((bwrap,))
        return Child(starter, first + options + command, b"", directories, orphaned)
    first = encode_arguments((bwrap, "--args", str(ARGUMENTS)))
    return Child(starter, first + command, options, directories, orphaned)
