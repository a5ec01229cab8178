"""Runs closed builds on servers (engine.remote.RemoteExecutor): who gets what, and what then.

An attempt that fails for the server's sake is made again on another one; one that takes far longer
than the last time is raced by a second; a server that gives false content, or whose workers do not
run actions as they must, is not asked any more, and is named.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import BinaryIO

from reprobuild.adapters.remote.agree import Agreement, lost, waiting
from reprobuild.adapters.remote.attempt import Attempt, Finished, Timeout, Unfit, write_log
from reprobuild.adapters.remote.naming import Namers
from reprobuild.adapters.remote.nodes import TELL, Node, Nodes
from reprobuild.adapters.remote.prepare import Prepared, prepare
from reprobuild.adapters.remote.server import Trouble
from reprobuild.adapters.remote.watch import Watch
from reprobuild.core.remote.action import RemoteAction, RemoteOutcome
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter

FAILURES = 6
"""Times that servers may fail at an action, while they answer, before it is theirs to blame."""

REFUSALS = 10
"""Times that servers may say that they have enough before people hear of it."""

PROBE = (2.0, 3.0)
"""Seconds for a server at which something failed to show that it is there, and has its content."""

_OUT = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
"""How a server says that it can do nothing, rather than that it could not do this."""

HEDGE = 3.0
HEDGE_LEAST = 10.0
"""A second server is asked after so many times the expected duration, and not before so many
seconds: what is short is not worth it."""


class ReapiExecutor:
    """`patience`: seconds to wait for a server when none answers."""

    def __init__(
        self,
        nodes: Nodes,
        namers: Namers,
        reporter: Reporter,
        *,
        patience: float,
        hedge: float = HEDGE,
        hedge_least: float = HEDGE_LEAST,
    ) -> None:
        self._nodes, self._reporter = nodes, reporter
        self._patience, self._hedge, self._hedge_least = patience, hedge, hedge_least
        self._pool = ThreadPoolExecutor(2 * nodes.most, "remote")
        self._watch: Watch | None = None
        self._lock = threading.Lock()
        self._agreement = Agreement(nodes, namers, patience, self.note)

    def note(self, text: str) -> None:
        """For people."""
        self._reporter.emit("note", text=text)

    def tell(self) -> None:
        """For people, once: nobody has been of use for a while."""
        if self._nodes.tells():
            rest = self._patience - self._nodes.quiet()
            self.note(waiting(self._nodes.troubles(), rest))

    @property
    def most(self) -> int:
        """What `slots` never exceeds."""
        return self._nodes.most

    def slots(self) -> int:
        """How many builds may be under way now."""
        return self._nodes.slots()

    def close(self) -> None:
        """Ends everything."""
        if self._watch is not None:
            self._watch.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for node in self._nodes.nodes:
            node.close()

    def run(self, action: RemoteAction, log: BinaryIO, cancel: threading.Event) -> RemoteOutcome:
        """Runs it to its end; see `engine.remote.RemoteExecutor`."""
        with self._lock:
            if self._watch is None:
                servers = [node.server for node in self._nodes.nodes]
                self._watch = Watch(servers, cancel, self.note)
        properties = self._nodes.nodes[0].server.access.properties
        try:
            namer = self._agreement.namer(cancel)
        except ReprobuildError:
            if cancel.is_set():
                return RemoteOutcome("interrupted", 0, {}, "")
            raise
        race = _Race(self, action, prepare(action, namer, properties), cancel, self._watch)
        try:
            finished = race.run()
        except Timeout:
            return RemoteOutcome("timeout", 0, {}, race.last, attempts=race.count)
        except ReprobuildError as error:
            if cancel.is_set():
                return RemoteOutcome("interrupted", 0, {}, race.last, attempts=race.count)
            error.facts.setdefault("derivation", action.label)
            raise
        write_log(log, finished)
        status = finished.status
        killed = 128 < status < 160
        return RemoteOutcome(
            reason="" if not status else "signal" if killed else "exit",
            status=status - 128 if killed else status,
            outputs=finished.outputs,
            node="" if finished.cached else finished.worker,
            cached=finished.cached,
            duration_ms=round(finished.ran * 1000),
            queued_ms=round(finished.queued * 1000),
            uploaded=finished.uploaded,
            downloaded=finished.downloaded,
            attempts=race.count,
            notes=(*finished.notes, *race.notes),
        )


class _Race:
    """All attempts at one action, until one comes back."""

    def __init__(
        self,
        executor: ReapiExecutor,
        action: RemoteAction,
        prepared: Prepared,
        cancel: threading.Event,
        watch: Watch,
    ) -> None:
        self._executor, self._action, self._prepared = executor, action, prepared
        self._nodes, self._cancel, self._watch = executor._nodes, cancel, watch
        self._running: dict[Future[Finished], Attempt] = {}
        self._avoid: set[str] = set()
        self._denied: set[str] = set()
        self._failures = self._refusals = 0
        self._skip_cache = action.fresh
        self.count = 0
        self.last = ""
        self.notes: list[str] = []

    def run(self) -> Finished:
        """The first answer that counts."""
        try:
            while True:
                if not self._running:
                    self._start(self._wait_for_node())
                done, _ = wait(self._running, self._hedge_in(), FIRST_COMPLETED)
                if not done:
                    self._start_second()
                for future in done:
                    attempt = self._running.pop(future)
                    self._nodes.give(attempt.node)
                    finished = self._settle(attempt, future)
                    if finished is not None:
                        return finished
        finally:
            for future, attempt in self._running.items():
                attempt.give_up("another one was faster")
                self._nodes.give(attempt.node)
                future.cancel()

    # -- starting ----------------------------------------------------------------------------

    def _start(self, node: Node) -> None:
        prepared = self._prepared
        if self._running:
            prepared = prepared.salted(f"hedge {self.count}".encode())
        self.count += 1
        self.last = node.name
        attempt = Attempt(
            node,
            prepared,
            self._action.outputs,
            self._action.hints.output_limit,
            self._skip_cache,
            self._cancel,
            on_taken=lambda: self._nodes.took(node),
        )
        self._watch.add(attempt)
        self._running[self._executor._pool.submit(self._attempt, attempt)] = attempt

    def _attempt(self, attempt: Attempt) -> Finished:
        try:
            return attempt.run()
        finally:
            self._watch.remove(attempt)

    def _start_second(self) -> None:
        others = frozenset(a.node.name for a in self._running.values()) | self._avoid
        node = self._nodes.take(others, urgent=False)
        if node is not None:
            slow = next(iter(self._running.values())).node.name
            self.notes.append(f"{slow} was slow; {node.name} was asked as well")
            self._start(node)

    def _hedge_in(self) -> float | None:
        """Seconds until a second server is asked; None when that is not to be."""
        expected = self._action.expected_ms / 1000
        if not expected or len(self._running) > 1:
            return None
        (attempt,) = self._running.values()
        due = max(self._executor._hedge_least, self._executor._hedge * expected)
        return max(1.0, due - (time.monotonic() - attempt.started))

    def _wait_for_node(self) -> Node:
        while True:
            self._go_on()
            node = self._nodes.take(frozenset(self._avoid))
            if node is not None:
                return node
            soon = self._nodes.soonest()
            if soon is None:
                raise self._nobody()
            if self._nodes.quiet() + soon > self._executor._patience:
                raise lost(self._nodes)
            self._executor.tell()
            self._cancel.wait(max(0.05, min(soon, TELL)))

    def _nobody(self) -> ReprobuildError:
        bans = self._nodes.bans()
        return ReprobuildError(
            "E-REMOTE-WORKER",
            "no server is left to ask: "
            + "; ".join(f"{node}: {reason}" for node, reason in sorted(bans.items())),
            node=", ".join(sorted(bans)),
        )

    def _go_on(self) -> None:
        if self._cancel.is_set():
            raise ReprobuildError("E-INTERRUPTED", "stopped")

    # -- what came of it ---------------------------------------------------------------------

    def _settle(self, attempt: Attempt, future: Future[Finished]) -> Finished | None:
        """The answer, or None when another attempt is to be made."""
        node = attempt.node
        try:
            finished = future.result()
        except Trouble as trouble:
            self._failed(attempt, trouble)
        except Unfit as error:
            self._ban(node, error.reason)
        except ReprobuildError as error:
            if error.code != "E-REMOTE-LIED":
                raise
            if self._skip_cache:
                self._ban(node, error.message.removeprefix(f"{node.name} "))
            else:
                # A result that was remembered, and whose content is gone since, is no lie.
                self._skip_cache = True
                self._note(error.message)
        else:
            self._nodes.good(node, queued=finished.queued, ran=finished.ran)
            return finished
        return None

    def _failed(self, attempt: Attempt, trouble: Trouble) -> None:
        self._go_on()
        node = attempt.node
        if trouble.denied:
            if node.name in self._denied:
                raise trouble.error()
            self._denied.add(node.name)  # a token gets old; the next call asks for another
            return
        if trouble.code == "RESOURCE_EXHAUSTED":
            self._nodes.full(node)
            self._refusals += 1
            if self._refusals >= REFUSALS:  # a queue moves; a disk that is full does not
                self._note(f"waits for {trouble}")
            return
        what = f"{node.name}: {attempt.abandoned}" if attempt.abandoned else str(trouble)
        self._note(f"tried again: {what}")
        self._avoid = {node.name}
        if not trouble.gone and trouble.code not in ("FAILED_PRECONDITION", "NOT_FOUND"):
            raise trouble.error()
        why = attempt.abandoned or self._idle(node)
        if not why and trouble.code in _OUT:
            why = trouble.details or trouble.code
        if why:
            self._nodes.lost(node, why)
            self._executor.tell()
            if not self._running and self._nodes.quiet() > self._executor._patience:
                raise lost(self._nodes)
            if not attempt.taken:
                return
        # It fails at this action, or this action at it; others may not.
        self._failures += 1
        if self._failures >= FAILURES and why:
            raise lost(self._nodes)
        if self._failures >= FAILURES:
            error = trouble.error()
            raise ReprobuildError("E-REMOTE", error.message, node=node.name, status=trouble.code)
        self._cancel.wait(min(2.0, 0.1 * 2**self._failures))

    @staticmethod
    def _idle(node: Node) -> str:
        idle = node.server.idle(*PROBE)
        return idle.why if idle is not None else ""

    def _ban(self, node: Node, reason: str) -> None:
        self._nodes.ban(node, reason)
        self._avoid = {node.name}
        self._note(f"{node.name} is not asked any more: {reason}")

    def _note(self, text: str) -> None:
        if text in self.notes:  # a server that is gone for long is asked often
            return
        self.notes.append(text)
        self._executor.note(f"{self._action.label}: {text}")
