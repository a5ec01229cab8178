"""`ports.Executor` on bubblewrap: puts identity, placements, limits and supervision together."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.sandbox import bare, cgroup, etc, probe, workdir
from reprobuild.adapters.sandbox.call import Machine, prepare
from reprobuild.adapters.sandbox.hosttools import host_tools_digest
from reprobuild.adapters.sandbox.identity import FIRST_UID, UidPool
from reprobuild.adapters.sandbox.later import Later
from reprobuild.adapters.sandbox.process import (
    Running,
    limiting_prefix,
    may_limit_others,
    start,
    start_by,
)
from reprobuild.adapters.sandbox.slots import Slot, Slots
from reprobuild.adapters.sandbox.starter import NoStarterError, StarterGoneError
from reprobuild.adapters.sandbox.supervise import (
    LOG_LIMIT,
    Followed,
    LogWriter,
    Watch,
    supervise,
)
from reprobuild.adapters.sandbox.usage import DiskWatch
from reprobuild.adapters.sandbox.verdict import (
    LEAST_MEMORY,
    explain,
    memory_limit,
    setup_failure,
    verdict,
)
from reprobuild.core.derivation import Hints, Isolation
from reprobuild.core.sandboxenv import ETC_NAME, SANDBOX_VERSION
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildOutcome, BuildRequest, Wish

PROCESSES = 8192
"""Processes and threads that one build may have at a time."""


@dataclass(frozen=True, slots=True)
class _Observed:
    reason: str
    peak_memory: int
    out_of_memory: bool
    unenforced: tuple[str, ...]


class BubblewrapExecutor:
    """Runs builds in bubblewrap, never as root outside.

    `wanted` is the isolation that was asked for; `runtime_dir` a directory of this machine's (for
    root, one for all processes: it holds the locks on user ids) that need not outlive a reboot;
    `bwrap` the program, found on PATH when None. `first_uid` begins the range of user ids that
    root gives to builds.
    """

    def __init__(
        self,
        wanted: Isolation,
        runtime_dir: Path,
        bwrap: str | None = None,
        *,
        first_uid: int = FIRST_UID,
        processes: int = PROCESSES,
        log_limit: int = LOG_LIMIT,
        least_memory: int = LEAST_MEMORY,
    ) -> None:
        self._wanted = wanted
        self._runtime = runtime_dir
        self._bwrap_wish = bwrap
        self._root = os.geteuid() == 0
        self._uids = UidPool(runtime_dir / "uids", first_uid)
        self._processes = processes
        self._log_limit = log_limit
        self._least_memory = least_memory
        self._lock = threading.Lock()
        self._later = Later()
        self._ready: _Ready | None = None

    @cached_property
    def version(self) -> str:
        """`sandbox/N`; of a weaker grade, the grade and the digest of the host's tools as well."""
        if self._wanted is Isolation.FULL:
            return SANDBOX_VERSION
        return f"{SANDBOX_VERSION}+{self._wanted.value}:{host_tools_digest()}"

    def probe(self, soon: Sequence[Hints] = ()) -> Isolation:
        """The grade that is given here: the wanted one.

        Tries it once in a process. `soon` are builds that will run at the same time before long:
        what starts them is started, and not waited for. Raises E-SANDBOX-UNAVAILABLE, with the
        cause and the way out, when it cannot be had.
        """
        self._prepare(soon)
        return self._wanted

    def _prepare(self, soon: Sequence[Hints] = ()) -> _Ready:
        with self._lock:
            if self._ready is None:
                try:
                    constants = etc.place(self._runtime / ETC_NAME)
                except OSError as error:
                    raise ReprobuildError(
                        "E-SANDBOX-SETUP",
                        f"{self._runtime} cannot be written: {error.strerror}",
                        hint="builds need a directory of this user's: $XDG_RUNTIME_DIR names one,"
                        " else it lies in the store",
                        file=os.fspath(self._runtime),
                    ) from error
                hierarchies = cgroup.discover()
                cgroup.sweep(hierarchies)
                within = self._root and not may_limit_others()
                bwrap, slots = "", None
                if self._wanted is not Isolation.NONE:
                    bwrap = probe.find_bwrap(self._bwrap_wish)
                    users = self._uids if self._root else None
                    slots = Slots(users, hierarchies, self._processes)
                    slots.expect([hints.output_limit for hints in soon])
                    self._check(bwrap, slots)
                machine = Machine(bwrap, constants, self._runtime / "stage")
                self._ready = _Ready(machine, hierarchies, within, slots)
            return self._ready

    def _check(self, bwrap: str, slots: Slots) -> None:
        try:
            with self._identity() as uid:
                probe.check(bwrap, uid)
        except BaseException:
            slots.close()
            raise

    def _identity(self) -> AbstractContextManager[int | None]:
        return self._uids.acquire() if self._root else nullcontext()

    def run(self, request: BuildRequest, log: BinaryIO, cancel: Wish) -> BuildOutcome:
        """Runs the request to its end, or kills everything when `cancel` is set.

        Raises E-SANDBOX-UNAVAILABLE as `probe` does, E-DERIVATION for a request that asks for
        what the sandbox does not give, E-SANDBOX-SETUP when the machine fails us.
        """
        ready = self._prepare()
        hints = request.hints
        if ready.slots is not None:
            try:
                memory = memory_limit(hints, self._least_memory)
                with ready.slots.take(hints.output_limit, memory) as slot:
                    return self._run(ready, request, slot.user, slot, log, cancel)
            except NoStarterError:
                ready.slots = None
            except StarterGoneError:
                pass  # something has killed it between two builds: this one goes without
        with self._identity() as uid:
            return self._run(ready, request, uid, None, log, cancel)

    def _run(
        self,
        ready: _Ready,
        request: BuildRequest,
        uid: int | None,
        slot: Slot | None,
        log: BinaryIO,
        cancel: Wish,
    ) -> BuildOutcome:
        hints = request.hints
        started = time.monotonic()
        try:
            begin = self._starter(ready, request, uid, slot)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ReprobuildError(
                "E-SANDBOX-SETUP",
                f"the work directory of {request.label} cannot be made ready: {error}",
                file=os.fspath(request.workdir),
            ) from error
        disk = DiskWatch(workdir.places(request.workdir), hints.output_limit)
        watch = Watch(hints.timeout, hints.silence, disk, cancel)
        writer = LogWriter(log, self._log_limit)
        running, seen = self._follow(ready, begin, hints, writer, watch)
        died = running.died()
        reason, status = verdict(
            running.exit_code(), died, seen.reason, seen.out_of_memory, writer.head
        )
        explain(writer, reason, hints, memory_limit(hints, self._least_memory), died)
        writer.close()
        return BuildOutcome(
            reason=reason,
            status=status,
            isolation=self._wanted,
            duration_ms=round((time.monotonic() - started) * 1000),
            peak_memory=seen.peak_memory,
            outputs=workdir.outputs(request.workdir, request.outputs),
            unenforced=seen.unenforced,
        )

    def _starter(
        self, ready: _Ready, request: BuildRequest, uid: int | None, slot: Slot | None
    ) -> _Begin:
        """Makes all ready, and returns what starts the build."""
        size = request.hints.output_limit
        if self._wanted is Isolation.NONE:
            work = workdir.prepare(request, uid)
            call_words = bare.translate(request, work)
            prefix = [*limiting_prefix(size), *bare.identity(request, uid)]
            return _Begin(lambda: bare.start(prefix, call_words))
        host = self._wanted is Isolation.HOST_TOOLCHAIN
        call = prepare(ready.machine, request, uid, host=host, by_starter=slot is not None)
        bwrap, words = ready.machine.bwrap, call.words(request)
        if slot is not None and not call.staged:
            group = slot.group
            return _Begin(lambda: start_by(slot.starter, bwrap, words, group.kill), group)
        before = limiting_prefix(size) if ready.limits_from_within else []
        return _Begin(lambda: start([*before, *call.prefix], bwrap, words))

    def _follow(
        self,
        ready: _Ready,
        begin: _Begin,
        hints: Hints,
        writer: LogWriter,
        watch: Watch,
    ) -> tuple[Followed, _Observed]:
        """Starts the build, stays with it to its end, and leaves nothing of it behind."""
        bare_grade = self._wanted is Isolation.NONE
        resident = begin.group is not None
        group = begin.group or cgroup.Group.make(
            ready.hierarchies, memory_limit(hints, self._least_memory), self._processes
        )
        try:
            try:
                running = begin.start()
            except OSError as error:  # no descriptor, or no memory, is left
                raise ReprobuildError(
                    "E-SANDBOX-SETUP", f"a build cannot be started: {error.strerror}"
                ) from error
            try:
                if isinstance(running, Running):
                    self._let_go(running, group, ready, hints)
                reason = supervise(running, writer, watch)
            finally:
                running.end()
                if bare_grade:
                    group.kill()
            wanted = {"memory": "memory", "pids": "processes"}
            if bare_grade:
                wanted[""] = "left-behind-processes"
            lacking = tuple(
                name
                for controller, name in wanted.items()
                if not (controller in group.held or (not controller and group.held))
            )
            return running, _Observed(reason, group.peak_memory(), group.out_of_memory(), lacking)
        finally:
            if not resident:
                group.remove()

    def _let_go(self, running: Running, group: cgroup.Group, ready: _Ready, hints: Hints) -> None:
        """Puts limits on what waits for them, and lets it begin."""
        if not running.await_init():
            running.process.wait()
            raise setup_failure(os.read(running.log, 4096))
        group.add(running.init)
        if self._wanted is not Isolation.NONE and not ready.limits_from_within:
            running.limit(hints.output_limit)
        running.go()

    def shell(self, request: BuildRequest, argv: Sequence[str]) -> int:
        """Runs `argv` in the request's sandbox, on the caller's terminal; returns its status.

        The terminal inside is one of our own making, so nothing can be typed into the caller's.
        What a former build left in the work directory is kept.
        """
        from reprobuild.adapters.sandbox import terminal

        ready = self._prepare()
        with self._identity() as uid:
            if self._wanted is Isolation.NONE:
                work = workdir.prepare(request, uid)
                words = bare.translate(replace(request, argv=tuple(argv)), work)
                return bare.interact(bare.identity(request, uid), words)
            host = self._wanted is Isolation.HOST_TOOLCHAIN
            call = prepare(ready.machine, request, uid, host=host)
            return terminal.interact(call.shell(request, argv, ready.machine.bwrap, uid))

    def close(self) -> None:
        """Ends what waits for the next build. Done by itself at the process's end."""
        with self._lock:
            if self._ready is not None and self._ready.slots is not None:
                self._ready.slots.close()
            self._ready = None

    def discard(self, workdir: Path) -> None:
        """Removes a work directory; no build may be running in it. Raises E-SANDBOX-SETUP."""
        self._later.remove(workdir)

    def batch(self) -> AbstractContextManager[None]:
        """While it is open, small work directories may be left to its end (later.py); the
        outermost raises E-SANDBOX-SETUP for one that cannot be removed."""
        return self._later.batch()


@dataclass(frozen=True, slots=True)
class _Begin:
    """What starts a build, and the groups it then is in already, if it is in any."""

    start: Callable[[], Followed]
    group: cgroup.Group | None = None


@dataclass(slots=True)
class _Ready:
    machine: Machine
    hierarchies: list[cgroup.Hierarchy]
    limits_from_within: bool
    slots: Slots | None
    """Where builds are started; None for those of grade `none`, and where no starter can be had."""
