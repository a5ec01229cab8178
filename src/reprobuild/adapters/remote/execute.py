"""One action on one server: Execute, followed to its end however often the stream breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reprobuild.adapters.remote.server import Server, Trouble
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.adapters.remote.upload import wait_a_little
from reprobuild.core.remote.function import Function
from reprobuild.core.remote.wire import Blob

WAITS = 6
STEADY = 10.0
"""Times that WaitExecution takes a stream up; one that held for so many seconds does not count."""

QUEUE_SECONDS = 3600
"""How long an action may wait for a worker, on top of its own time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An ExecuteResponse; `status` is gRPC's name of its status (`OK` where there is none)."""

    result: Any
    status: str
    message: str
    cached: bool
    seconds: float


class Calls:
    """The streams that are open, so that another thread can end them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Any] = set()
        self.ended = False

    def add(self, call: Any) -> None:
        """From now on `end` ends it."""
        with self._lock:
            self._open.add(call)
            ended = self.ended
        if ended:
            call.cancel()

    def remove(self, call: Any) -> None:
        """It came to its end."""
        with self._lock:
            self._open.discard(call)

    def end(self) -> None:
        """Cancels all, and what is added later."""
        with self._lock:
            self.ended = True
            every = list(self._open)
        for call in every:
            call.cancel()


def execute(
    server: Server,
    function: Function,
    action: Blob,
    timeout: int,
    calls: Calls,
    *,
    skip_cache: bool,
    cancel: threading.Event,
    on_stage: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Runs an action whose content is on the server. Raises `Trouble`.

    A stream that breaks after the operation has a name is taken up by WaitExecution: the work goes
    on all the while. Where `calls` were ended, or all is cancelled, the server is told to end it.
    `timeout` in seconds, of the action itself.
    """
    s = stubs()
    started = time.monotonic()
    request = s.re.ExecuteRequest(
        instance_name=server.instance,
        action_digest=s.re.Digest(hash=action.hash, size_bytes=action.size),
        skip_cache_lookup=skip_cache,
        digest_function=function.number,
    )
    name = ""
    waits = 0
    while True:
        remaining = timeout + QUEUE_SECONDS - (time.monotonic() - started)
        if remaining <= 0:
            raise Trouble(server.host, "DEADLINE_EXCEEDED", "the action never came to its end")
        try:
            with server.failures():
                if name:
                    call = server.execution.WaitExecution(
                        s.re.WaitExecutionRequest(name=name),
                        timeout=remaining,
                        metadata=server.metadata(),
                    )
                else:
                    call = server.execution.Execute(
                        request, timeout=remaining, metadata=server.metadata()
                    )
                calls.add(call)
                opened = time.monotonic()
                try:
                    for operation in call:
                        if operation.name:
                            name = operation.name
                        if time.monotonic() - opened > STEADY:
                            waits = 0
                        if operation.done:
                            return _answer(server, operation, time.monotonic() - started)
                        on_stage(_stage(operation))
                finally:
                    calls.remove(call)
            raise Trouble(server.host, "UNAVAILABLE", "the stream ended before the action did")
        except Trouble as trouble:
            waits += 1
            if cancel.is_set() or calls.ended:
                if name:
                    server.stop(name)
                raise
            if not trouble.gone or not name or waits > WAITS:
                raise
            if trouble.code == "RESOURCE_EXHAUSTED":
                raise
            wait_a_little(cancel, waits)


def _stage(operation: Any) -> str:
    s = stubs()
    metadata = s.re.ExecuteOperationMetadata()
    if operation.metadata.Is(metadata.DESCRIPTOR):
        operation.metadata.Unpack(metadata)
        return str(s.re.ExecutionStage.Value.Name(metadata.stage))
    return "UNKNOWN"


def _answer(server: Server, operation: Any, seconds: float) -> Answer:
    s = stubs()
    if operation.HasField("error"):
        return Answer(
            None,
            _code(operation.error.code),
            operation.error.message,
            cached=False,
            seconds=seconds,
        )
    response = s.re.ExecuteResponse()
    if not operation.response.Unpack(response):
        raise Trouble(server.host, "DATA_LOSS", "an operation ended without a response")
    return Answer(
        response.result,
        _code(response.status.code),
        response.status.message or response.message,
        response.cached_result,
        seconds,
    )


def _code(number: int) -> str:
    return next((c.name for c in stubs().grpc.StatusCode if c.value[0] == number), "UNKNOWN")
