"""Builds on other machines: which may go there, and what is made of what comes back."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from reprobuild.core.derivation import SANDBOX, Derivation, InputContent, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.core.remote.action import RemoteAction, RemoteOutcome
from reprobuild.core.tree import EMPTY
from reprobuild.engine.build import failure
from reprobuild.engine.workplace import log_name, new_log
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter

LOST = "E-REMOTE-LOST"
UNFIT = frozenset({"E-REMOTE-NAME", "E-REMOTE-UNFIT"})
"""What only says that this build cannot go there: here it can be made."""

UNENFORCED = ("memory", "output-size", "processes", "silence")
"""Limits that the protocol has no word for; time is the only one that it takes."""


class RemoteExecutor(Protocol):
    """Runs closed builds on other machines. Safe for many threads; decides nothing."""

    @property
    def most(self) -> int:
        """What `slots` never exceeds."""
        ...

    def slots(self) -> int:
        """How many builds may be under way there now; 0 while nobody answers."""
        ...

    def run(self, action: RemoteAction, log: BinaryIO, cancel: threading.Event) -> RemoteOutcome:
        """Runs to the end; output goes to `log`, outputs into the store, named by what they are.

        Lost nodes and broken streams are tried again elsewhere. Raises E-REMOTE-LOST when nobody
        is left, E-REMOTE-NAME and E-REMOTE-UNFIT for what cannot be run there, E-REMOTE-WORKER
        for workers that do not agree in what a build sees, E-REMOTE-ACCESS for credentials.
        """
        ...


@dataclass(slots=True)
class Elsewhere:
    """Other machines, as the engine uses them. `fallback`: what they cannot take, or what is
    left when they are lost, is built here."""

    executor: RemoteExecutor
    reporter: Reporter
    logs: Path
    cancel: threading.Event
    fallback: bool = True
    executed: int = 0
    cached: int = 0
    uploaded: int = 0
    downloaded: int = 0
    retried: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, derivation: Derivation) -> bool:
        """Whether a derivation may go there at all."""
        return derivation.builder == SANDBOX

    def slots(self) -> int:
        """How many at once. Without a fallback never 0: who waits for nobody is to be told."""
        slots = self.executor.slots()
        return slots if self.fallback else max(1, slots)

    def stays(self, error: BaseException) -> bool:
        """Whether a build that failed there is to be made here."""
        return (
            self.fallback
            and isinstance(error, ReprobuildError)
            and (error.code == LOST or error.code in UNFIT)
        )

    def build(
        self,
        derivation: Derivation,
        action: Digest,
        inputs: Mapping[str, InputContent],
        expected_ms: int,
        *,
        fresh: bool,
    ) -> tuple[Record, bool]:
        """Makes it there; (the record to be, whether nobody had to run it)."""
        asked = RemoteAction.of(derivation, inputs, expected_ms, fresh=fresh)
        with new_log(self.logs, derivation.digest) as (path, log):
            self.reporter.emit("build-started", name=derivation.name, log=path, remote=True)
            outcome = self.executor.run(asked, log, self.cancel)
        self._count(outcome)
        self.reporter.emit(
            "remote",
            name=derivation.name,
            node=outcome.node,
            cached=outcome.cached,
            attempts=outcome.attempts,
            queued_ms=outcome.queued_ms,
            duration_ms=outcome.duration_ms,
            uploaded=outcome.uploaded,
            downloaded=outcome.downloaded,
        )
        if outcome.reason:
            raise failure(derivation, outcome.reason, outcome.status, path, node=outcome.node)
        for output in derivation.outputs:
            if outcome.outputs.get(output, EMPTY.digest) == EMPTY.digest:
                raise ReprobuildError(
                    "E-BUILD-NO-OUTPUT",
                    f"{derivation.name} ended well, but left nothing in output {output!r} that "
                    "other machines can send: they leave FIFOs, sockets and devices out silently",
                    drv=str(derivation.digest),
                    log=path,
                    node=outcome.node or None,
                )
        where = f"ran on {outcome.node}" if outcome.node else "remembered by the remote server"
        record = Record(
            action=action,
            drv=derivation.digest,
            outputs=outcome.outputs,
            isolation=Isolation.REMOTE,
            duration_ms=outcome.duration_ms,
            log=log_name(path),
            name=derivation.name,
            unenforced=UNENFORCED,
            notes=(where, *outcome.notes),
        )
        return record, outcome.cached

    def _count(self, outcome: RemoteOutcome) -> None:
        with self._mutex:
            self.uploaded += outcome.uploaded
            self.downloaded += outcome.downloaded
            self.retried += outcome.attempts - 1
            if outcome.cached:
                self.cached += 1
            else:
                self.executed += 1
                self.nodes[outcome.node] = self.nodes.get(outcome.node, 0) + 1

    def document(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "cached": self.cached,
            "downloaded": self.downloaded,
            "executed": self.executed,
            "nodes": dict(sorted(self.nodes.items())),
            "retried": self.retried,
            "uploaded": self.uploaded,
        }
