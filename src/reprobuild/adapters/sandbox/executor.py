"""`ports.Executor` on bubblewrap: puts identity, placements, limits and supervision together."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.sandbox import cgroup, command, etc, probe, seccomp, workdir
from reprobuild.adapters.sandbox.identity import FIRST_UID, UidPool
from reprobuild.adapters.sandbox.process import (
    Running,
    SandboxWords,
    limiting_prefix,
    may_limit_others,
    start,
)
from reprobuild.adapters.sandbox.removal import remove_tree
from reprobuild.adapters.sandbox.rootfs import Placement, arrange
from reprobuild.adapters.sandbox.staging import stage_for
from reprobuild.adapters.sandbox.supervise import LogWriter, Watch, supervise
from reprobuild.adapters.sandbox.usage import DiskWatch
from reprobuild.core.derivation import Hints, Isolation
from reprobuild.core.sandboxenv import SANDBOX_VERSION
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildOutcome, BuildRequest

PROCESSES = 8192
"""Processes and threads that one build may have at a time."""

_LEAST_MEMORY = 4 * 2**30
_SIGXFSZ = 25


def memory_limit(hints: Hints) -> int:
    """The hard limit, in bytes, for a build that is expected to need `hints.memory`.

    The hint is the scheduler's estimate; the limit only has to stop what went out of hand.
    """
    return max(4 * hints.memory, _LEAST_MEMORY)


@dataclass(frozen=True, slots=True)
class _Call:
    """How to start one sandbox: what stands before `bwrap`, and what is placed inside."""

    prefix: tuple[str, ...]
    placements: tuple[Placement, ...]
    work: command.Work


class BubblewrapExecutor:
    """Runs builds in bubblewrap, never as root outside.

    `wanted` is the isolation that was asked for; `runtime_dir` a directory of this machine's (for
    root, one for all processes: it holds the locks on user ids) that need not outlive a reboot;
    `bwrap` the program, found on PATH when None. `first_uid` begins the range of user ids that
    root gives to builds.
    """

    version = SANDBOX_VERSION

    def __init__(
        self,
        wanted: Isolation,
        runtime_dir: Path,
        bwrap: str | None = None,
        *,
        first_uid: int = FIRST_UID,
        processes: int = PROCESSES,
        log_limit: int | None = None,
    ) -> None:
        self._wanted = wanted
        self._runtime = runtime_dir
        self._bwrap_wish = bwrap
        self._root = os.geteuid() == 0
        self._uids = UidPool(runtime_dir / "uids", first_uid)
        self._processes = processes
        self._log_limit = log_limit
        self._lock = threading.Lock()
        self._ready: _Ready | None = None

    def probe(self) -> Isolation:
        """The grade that is given here: the wanted one.

        Tries it once in a process. Raises E-SANDBOX-UNAVAILABLE, with the cause and the way out,
        when it cannot be had.
        """
        self._prepare()
        return self._wanted

    def _prepare(self) -> _Ready:
        with self._lock:
            if self._ready is None:
                try:
                    self._runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
                    constants = etc.place(self._runtime / f"etc-{SANDBOX_VERSION.split('/')[1]}")
                except OSError as error:
                    raise ReprobuildError(
                        "E-SANDBOX-SETUP",
                        f"{self._runtime} cannot be written: {error.strerror}",
                        file=os.fspath(self._runtime),
                    ) from error
                bwrap = ""
                if self._wanted is not Isolation.NONE:
                    bwrap = probe.find_bwrap(self._bwrap_wish)
                    with self._identity() as uid:
                        probe.check(bwrap, uid)
                hierarchies = cgroup.discover()
                cgroup.sweep(hierarchies)
                within = self._root and not may_limit_others()
                self._ready = _Ready(bwrap, constants, tuple(hierarchies), within)
            return self._ready

    @contextmanager
    def _identity(self) -> Iterator[int | None]:
        if not self._root:
            yield None
            return
        with self._uids.acquire() as uid:
            yield uid

    def run(self, request: BuildRequest, log: BinaryIO, cancel: threading.Event) -> BuildOutcome:
        """Runs the request to its end, or kills everything when `cancel` is set.

        Raises E-SANDBOX-UNAVAILABLE as `probe` does, E-DERIVATION for a request that asks for
        what the sandbox does not give, E-SANDBOX-SETUP when the machine fails us.
        """
        ready = self._prepare()
        with self._identity() as uid:
            return self._run(ready, request, uid, log, cancel)

    def _run(
        self,
        ready: _Ready,
        request: BuildRequest,
        uid: int | None,
        log: BinaryIO,
        cancel: threading.Event,
    ) -> BuildOutcome:
        hints = request.hints
        call = self._call(ready, request, uid)
        disk = DiskWatch(
            [Path(p) for p in (call.work.out, call.work.build, call.work.tmp)], hints.output_limit
        )
        watch = Watch(hints.timeout, hints.silence, disk, cancel)
        writer = LogWriter(log, self._log_limit or watch.log_limit)
        group = cgroup.Group.make(list(ready.hierarchies), memory_limit(hints), self._processes)
        begin = time.monotonic()
        try:
            prefix = [*ready.limiting(hints), *call.prefix]
            running = start(prefix, ready.bwrap, self._words(call, request))
            try:
                if not running.await_init():
                    running.process.wait()
                    raise _setup_failure(os.read(running.log, 4096))
                group.add(running.init)
                if not ready.limits_from_within:
                    running.limit(hints.output_limit)
                running.go()
                reason = supervise(running, writer, watch)
            finally:
                running.end()
            peak, starved = group.peak_memory(), group.out_of_memory()
        finally:
            group.remove()
        duration = round((time.monotonic() - begin) * 1000)
        reason, status = _verdict(running, reason, starved, writer)
        _explain(writer, reason, hints)
        writer.close()
        return BuildOutcome(
            reason=reason,
            status=status,
            isolation=self._wanted,
            duration_ms=duration,
            peak_memory=peak,
            outputs=workdir.outputs(request.workdir, request.outputs),
            unenforced=tuple(
                name
                for name, controller in (("memory", "memory"), ("processes", "pids"))
                if controller not in group.held
            ),
        )

    def _call(self, ready: _Ready, request: BuildRequest, uid: int | None) -> _Call:
        host = self._wanted is Isolation.HOST_TOOLCHAIN
        placements = arrange(request.mounts, ready.constants, host=host)
        work = workdir.prepare(request.workdir, request.cwd, uid)
        if uid is None:
            return _Call((), tuple(placements), work)
        sources = [m.source for m in request.mounts if not (host and m.at == "/")]
        stage = stage_for([*sources, ready.constants], request.workdir)
        user = command.as_user(uid)
        if not stage:
            return _Call(tuple(user), tuple(placements), work)
        prefix = [*command.staged(ready.bwrap, stage.sources, stage.writable), *user]
        moved = command.Work(*(stage.path(p) for p in (work.build, work.out, work.tmp)))
        return _Call(tuple(prefix), tuple(stage.rebase(placements)), moved)

    def _words(self, call: _Call, request: BuildRequest) -> SandboxWords:
        def options(filter_fd: int, status: int, block: int) -> list[str]:
            descriptors = command.Descriptors(filter_fd, status, block)
            return command.options(
                call.placements, call.work, request.env, request.cwd, descriptors
            )

        return SandboxWords(request.argv, seccomp.program(), options)

    def shell(self, request: BuildRequest, argv: Sequence[str]) -> int:
        """Runs `argv` in the request's sandbox, on the caller's terminal; returns its status.

        The terminal inside is one of our own making, so nothing can be typed into the caller's.
        What a former build left in the work directory is kept.
        """
        from reprobuild.adapters.sandbox import terminal
        from reprobuild.adapters.sandbox.terminal import SandboxShell

        ready = self._prepare()
        with self._identity() as uid:
            call = self._call(ready, request, uid)

            def options(filter_fd: int) -> list[str]:
                descriptors = command.Descriptors(filter_fd)
                return command.options(
                    call.placements,
                    call.work,
                    request.env,
                    request.cwd,
                    descriptors,
                    terminal=True,
                )

            words = SandboxShell(call.prefix, ready.bwrap, argv, seccomp.program(), options, uid)
            return terminal.interact(words)

    def discard(self, workdir: Path) -> None:
        """Removes a work directory; no build may be running in it. Raises E-SANDBOX-SETUP."""
        try:
            remove_tree(workdir)
        except OSError as error:
            raise ReprobuildError(
                "E-SANDBOX-SETUP",
                f"{workdir} cannot be removed: {error}",
                hint="remove it by hand",
                file=os.fspath(workdir),
            ) from error


@dataclass(frozen=True, slots=True)
class _Ready:
    bwrap: str
    constants: Path
    hierarchies: tuple[cgroup.Hierarchy, ...]
    limits_from_within: bool

    def limiting(self, hints: Hints) -> list[str]:
        """The prefix that sets limits, where they cannot be set from outside."""
        return limiting_prefix(hints.output_limit) if self.limits_from_within else []


def _setup_failure(said: bytes) -> ReprobuildError:
    text = said.decode(errors="replace").strip()
    return ReprobuildError(
        "E-SANDBOX-SETUP",
        f"the sandbox could not be made: {text or 'bubblewrap failed and said nothing'}",
        bubblewrap=text,
    )


def _verdict(running: Running, reason: str, starved: bool, writer: LogWriter) -> tuple[str, int]:
    """Reason and status, out of what was seen."""
    code = running.exit_code()
    if reason:
        return reason, 0 if code is None else code
    if code == 0:
        return "", 0
    if starved:
        return "memory", 0 if code is None else code
    if code is None:
        if b"bwrap: execvp" in writer.head:
            return "exit", 127
        raise _setup_failure(writer.head)
    if 128 < code <= 128 + 64:
        number = code - 128
        return ("output-size" if number == _SIGXFSZ else "signal"), number
    return "exit", code


def _explain(writer: LogWriter, reason: str, hints: Hints) -> None:
    """Says in the log, at its end, why a build was stopped."""
    texts = {
        "timeout": f"stopped: still running after {hints.timeout} s",
        "silence": f"stopped: no output for {hints.silence} s",
        "output-size": f"stopped: took more than {hints.output_limit} bytes of disk",
        "memory": f"stopped: needed more than {memory_limit(hints)} bytes of memory",
        "interrupted": "stopped: interrupted",
    }
    if reason in texts:
        writer.note(texts[reason])
