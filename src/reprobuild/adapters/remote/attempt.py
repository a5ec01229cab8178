"""One try of one action at one server: up, run, down."""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from reprobuild.adapters.remote.execute import Answer, Calls, execute
from reprobuild.adapters.remote.nodes import Node
from reprobuild.adapters.remote.prepare import SEEN, Prepared
from reprobuild.adapters.remote.server import Server, Trouble, lied
from reprobuild.core.digest import Digest
from reprobuild.core.remote.wire import Blob
from reprobuild.errors import ReprobuildError

LOG_LIMIT = 64 * 2**20
"""Bytes that are kept of standard output, and of standard error; what is beyond stays there."""

PING = 3.0
"""Seconds for a server that failed before to show that it is back."""


class Unfit(Exception):
    """A worker that does not agree in what a build sees; `reason` in words."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"{node}: {reason}")
        self.node, self.reason = node, reason


class Timeout(Exception):
    """The server ended the action because its time was up."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What came back. `log` is output as it was kept by the server: standard output, then error."""

    status: int
    outputs: Mapping[str, Digest]
    worker: str
    cached: bool
    ran: float
    queued: float
    uploaded: int
    downloaded: int
    log: tuple[bytes, ...]
    notes: tuple[str, ...]


@dataclass(eq=False, slots=True)
class Attempt:
    """`run` once. Another thread may `give_up` on it at any time. `on_taken` hears that the server
    took the action on."""

    node: Node
    prepared: Prepared
    outputs: tuple[str, ...]
    output_limit: int
    skip_cache: bool
    cancel: threading.Event
    started: float = field(default_factory=time.monotonic)
    calls: Calls = field(default_factory=Calls)
    stage: str = "upload"
    abandoned: str = ""
    on_taken: Callable[[], None] = lambda: None

    @property
    def server(self) -> Server:
        """Of whom it is asked."""
        return self.node.server

    @property
    def taken(self) -> bool:
        """Whether the server took the action on."""
        return self.stage not in ("upload", "execute")

    @property
    def patient(self) -> bool:
        """Whether the action is with the server, which may end it by itself."""
        return self.taken and self.stage != "download"

    def give_up(self, reason: str) -> None:
        """Ends the calls that are open; `run` then fails."""
        self.abandoned = self.abandoned or reason
        self.calls.end()

    def run(self) -> Finished:
        """Raises `Trouble`, `Unfit`, `Timeout`, E-REMOTE-LIED and errors of the store."""
        node, prepared = self.node, self.prepared
        if node.failures and (idle := node.server.idle(PING, PING)):
            raise Trouble(node.name, "UNAVAILABLE", idle.why)
        abilities, function = node.server.abilities(), prepared.function
        if not abilities.executes:
            raise Unfit(node.name, "it does not execute actions")
        if function not in abilities.runs:  # it was not there when the function was chosen
            raise Unfit(node.name, f"it has no {function.name}, by which this run names content")
        sent = node.uploader.ensure(prepared.offers, prepared.trees)
        answer = self._execute()
        result = answer.result
        worker = result.execution_metadata.worker
        where = f"{worker}@{node.name}" if worker else node.name
        self.stage = "download"
        try:
            notes = self._agreed(result, where)
            outputs, came = self._take(result)
        except Trouble as trouble:
            if trouble.code == "NOT_FOUND":
                raise lied(
                    node.name, f"has a result, but not its content: {trouble.details}"
                ) from None
            raise
        ran = _seconds(result.execution_metadata) or answer.seconds
        return Finished(
            status=result.exit_code,
            outputs=outputs,
            worker=where,
            cached=answer.cached,
            ran=ran,
            queued=max(0.0, answer.seconds - ran),
            uploaded=sent,
            downloaded=came,
            log=self._log(result),
            notes=notes,
        )

    def _execute(self) -> Answer:
        self.stage = "execute"
        server, again = self.node.server, True
        while True:
            answer = execute(
                server,
                self.prepared.function,
                self.prepared.action,
                self.prepared.timeout,
                self.calls,
                skip_cache=self.skip_cache,
                cancel=self.cancel,
                on_stage=self._on_stage,
            )
            if answer.status == "OK" and answer.result is not None:
                return answer
            if (
                answer.status == "DEADLINE_EXCEEDED"
                and answer.seconds >= 0.5 * self.prepared.timeout
            ):
                raise Timeout
            if again and answer.status in ("FAILED_PRECONDITION", "NOT_FOUND", "INTERNAL"):
                # As a rule it says so of content that it has thrown away since we asked.
                again = False
                self.node.uploader.doubt()
                self.node.uploader.ensure(self.prepared.offers, self.prepared.trees)
                continue
            raise Trouble(server.host, answer.status, answer.message[:500])

    def _on_stage(self, stage: str) -> None:
        if not self.taken:
            self.on_taken()
        self.stage = stage.lower()

    # -- what came ---------------------------------------------------------------------------

    def _agreed(self, result: Any, where: str) -> tuple[str, ...]:
        """What the launcher could not change, as notes; raises `Unfit`."""
        for file in result.output_files:
            if posixpath.basename(file.path) == SEEN:
                blob = Blob(file.digest.hash, file.digest.size_bytes)
                text = self.node.downloader.read(blob, 4096).decode("utf-8", "replace")
                lines = text.splitlines()
                for line in lines:
                    if line.startswith("refused "):
                        raise Unfit(where, f"its builds have {line.removeprefix('refused ')}")
                return tuple(f"{where} shows another {line}" for line in lines)
        raise Unfit(where, "it ran the action, but not in the input root as `/`")

    def _take(self, result: Any) -> tuple[dict[str, Digest], int]:
        outputs: dict[str, Digest] = {}
        came = 0
        if result.exit_code:
            return outputs, came
        for row in result.output_directories:
            name = posixpath.basename(row.path)
            if name in self.outputs:
                blob = Blob(row.tree_digest.hash, row.tree_digest.size_bytes)
                outputs[name], size = self.node.downloader.tree(blob, self.output_limit)
                came += size
        return outputs, came

    def _log(self, result: Any) -> tuple[bytes, ...]:
        out = []
        for raw, digest in (
            (result.stdout_raw, result.stdout_digest),
            (result.stderr_raw, result.stderr_digest),
        ):
            if raw:
                out.append(raw)
            elif digest.size_bytes:
                out.append(self._text(Blob(digest.hash, digest.size_bytes)))
        return tuple(out)

    def _text(self, blob: Blob) -> bytes:
        try:
            if blob.size <= LOG_LIMIT:
                return self.node.downloader.read(blob, LOG_LIMIT)
            head = self.node.downloader.head(blob, LOG_LIMIT)
            dropped = blob.size - len(head)
            cut = f"the log was cut after {len(head)} bytes; {dropped} more were dropped"
            return head + (b"" if head.endswith(b"\n") else b"\n") + _mark(cut)
        except (Trouble, ReprobuildError) as error:
            return _mark(f"the output is not to be had: {error}")


def _mark(text: str) -> bytes:
    """A line of ours in a log, as in those of builds here."""
    return f"[reprobuild: {text}]\n".encode(errors="replace")


def _seconds(metadata: Any) -> float:
    """How long the worker had it; 0.0 where it does not say."""
    begin, end = metadata.worker_start_timestamp, metadata.worker_completed_timestamp
    took = (end.seconds - begin.seconds) + (end.nanos - begin.nanos) / 1e9
    return max(0.0, float(took))


def write_log(log: BinaryIO, finished: Finished) -> None:
    """What the build said."""
    for part in finished.log:
        log.write(part)
        if not part.endswith(b"\n"):
            log.write(b"\n")
