"""One server: its channel, its calls, and what their failures mean."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from reprobuild.adapters.remote.access import Access, Token
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.core.remote.function import PREFERRED, Function
from reprobuild.errors import ReprobuildError

MESSAGE = 4 * 2**20
"""Bytes of a message that every server takes."""

CALL = 60.0
"""Seconds for a short call."""

FIRST = 12.0
"""Seconds for a server to say what it can do, before anything else is asked of it."""

CANCEL = 2.0
"""Seconds for a server to hear that an operation is not wanted any more."""

_OPTIONS = [
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.max_send_message_length", 64 * 2**20),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.use_local_subchannel_pool", 1),
]


class Trouble(Exception):
    """A call that failed. `gone`: the server, or the way to it, may be lost; another may do."""

    def __init__(self, node: str, code: str, details: str) -> None:
        super().__init__(f"{node}: {code}: {details}" if details else f"{node}: {code}")
        self.node, self.code, self.details = node, code, details

    @property
    def gone(self) -> bool:
        """Whether it is the server that is at fault, and not what it was asked."""
        return self.code in _GONE

    @property
    def stammers(self) -> bool:
        """Whether the same may do at once; CANCELLED is how calls end that are wished no more."""
        return self.gone and self.code != "CANCELLED"

    @property
    def denied(self) -> bool:
        """Whether it was the credentials."""
        return self.code in ("UNAUTHENTICATED", "PERMISSION_DENIED")

    def error(self) -> ReprobuildError:
        """For people."""
        code = "E-REMOTE-ACCESS" if self.denied else "E-REMOTE-LOST" if self.gone else "E-REMOTE"
        return ReprobuildError(
            code,
            f"{self.node} answers {self.code}" + (f": {self.details}" if self.details else ""),
            node=self.node,
            status=self.code,
        )


def lied(node: str, what: str) -> ReprobuildError:
    """E-REMOTE-LIED of a node."""
    return ReprobuildError("E-REMOTE-LIED", f"{node} {what}", node=node)


_GONE = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "INTERNAL", "UNKNOWN"}
    | {"RESOURCE_EXHAUSTED", "DATA_LOSS"}
)


@dataclass(frozen=True, slots=True)
class Idle:
    """A server that is of no use now: `why` in words, and whether it is `there` all the same."""

    why: str
    there: bool


def _idle(what: str, trouble: Trouble, *, there: bool) -> Idle:
    silent = trouble.code == "DEADLINE_EXCEEDED"
    return Idle(what if silent else f"{what}: {trouble.details or trouble.code}", there)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server says that it can do.

    `batch` in bytes. `functions` name its content, `runs` also what it executes: those of them
    that are known here.
    """

    batch: int
    zstd: bool
    executes: bool
    updates: bool
    functions: frozenset[Function]
    runs: frozenset[Function]


class Server:
    """A channel to one `host:port` of an instance. Safe for many threads."""

    def __init__(self, host: str, instance: str, access: Access, *, secure: bool) -> None:
        self.host, self.instance, self.access = host, instance, access
        self._secure = secure
        self._token = Token(access, host, secure=secure)
        self._lock = threading.Lock()
        self._channel: Any = None
        self._closed = False
        self._made: dict[str, Any] = {}
        self._abilities: Abilities | None = None

    # -- channel and services ----------------------------------------------------------------

    @property
    def channel(self) -> Any:
        """The channel, opened on first use; `Trouble` once the server was closed."""
        with self._lock:
            if self._closed:
                raise Trouble(self.host, "CANCELLED", "this run does not ask it any more")
            if self._channel is None:
                self._channel = self._open()
            return self._channel

    def _open(self) -> Any:
        grpc = stubs().grpc
        if not self._secure:
            return grpc.insecure_channel(self.host, options=_OPTIONS)
        access = self.access
        credentials = grpc.ssl_channel_credentials(
            access.pem(access.ca, "certificate authority"),
            access.pem(access.key, "client key"),
            access.pem(access.certificate, "client certificate"),
        )
        return grpc.secure_channel(self.host, credentials, options=_OPTIONS)

    def close(self) -> None:
        """Ends all calls; later ones fail."""
        with self._lock:
            self._closed = True
        self.reset()

    def reset(self) -> None:
        """Ends all calls that are under way; later ones go over a new connection.

        A call whose server is cut off would else wait for its own deadline.
        """
        with self._lock:
            channel, self._channel = self._channel, None
            self._made.clear()
        if channel is not None:
            channel.close()

    def _service(self, kind: str) -> Any:
        channel = self.channel
        with self._lock:
            if self._channel is not channel:
                self._made.clear()
            if kind not in self._made:
                s = stubs()
                home = {"ByteStream": s.stream_services, "Operations": s.operation_services}
                self._made[kind] = getattr(home.get(kind, s.services), f"{kind}Stub")(channel)
            return self._made[kind]

    @property
    def cas(self) -> Any:
        """ContentAddressableStorage."""
        return self._service("ContentAddressableStorage")

    @property
    def actions(self) -> Any:
        """ActionCache."""
        return self._service("ActionCache")

    @property
    def execution(self) -> Any:
        """Execution."""
        return self._service("Execution")

    @property
    def stream(self) -> Any:
        """ByteStream."""
        return self._service("ByteStream")

    # -- calls -------------------------------------------------------------------------------

    @contextmanager
    def failures(self) -> Iterator[None]:
        """What gRPC raises inside becomes `Trouble`."""
        grpc = stubs().grpc
        try:
            yield
        except grpc.RpcError as error:
            code = error.code().name if hasattr(error, "code") else "UNKNOWN"
            details = error.details() if hasattr(error, "details") else str(error)
            if code == "UNAUTHENTICATED":
                self._token.forget()
            raise Trouble(self.host, code, self._token.redact(details or "")[:500]) from None
        except ValueError as error:
            # gRPC's way of saying that the channel was closed under a call
            raise Trouble(self.host, "CANCELLED", str(error)[:200]) from None

    def metadata(self) -> list[tuple[str, str]]:
        """For each call."""
        return self._token.metadata()

    def call(self, method: Callable[..., Any], request: Any, seconds: float = CALL) -> Any:
        """One short call; a token that got old is asked for once more. Raises `Trouble`."""
        try:
            with self.failures():
                return method(request, timeout=seconds, metadata=self.metadata())
        except Trouble as trouble:
            if trouble.code != "UNAUTHENTICATED" or not self.metadata():
                raise
            with self.failures():
                return method(request, timeout=seconds, metadata=self.metadata())

    def abilities(self) -> Abilities:
        """What it can do; asked once. Raises `Trouble`."""
        if self._abilities is None:
            self._abilities = self._ask(FIRST)
        return self._abilities

    def answers(self, seconds: float) -> bool:
        """Whether it says anything at all within that time."""
        try:
            self._ask(seconds)
        except Trouble:
            return False
        return True

    def idle(self, seconds: float, content: float) -> Idle | None:
        """Why it is of no use now; None when it is.

        It has so many seconds to say anything at all, and then to look for content: what it has
        from another server it may be waiting for, and can do nothing until it comes.
        """
        try:
            able = self._ask(seconds)
        except Trouble as trouble:
            return _idle("it does not answer", trouble, there=False)
        function = next((f for f in PREFERRED if f in able.functions), None)
        if function is None:
            return None
        blob = function.blob(b"whether anybody looks for it")
        s = stubs()
        request = s.re.FindMissingBlobsRequest(
            instance_name=self.instance,
            blob_digests=[s.re.Digest(hash=blob.hash, size_bytes=blob.size)],
            digest_function=function.number,
        )
        try:
            self.call(self.cas.FindMissingBlobs, request, content)
        except Trouble as trouble:
            if trouble.gone and trouble.code != "RESOURCE_EXHAUSTED":
                return _idle("it answers, but does not reach its content", trouble, there=True)
        return None

    def stop(self, operation: str) -> None:
        """Says that an operation's work is not wanted any more, where it has an ear for that.

        The API leaves it to the server what becomes of a stream that its client ended: most work
        on, for another may ask.
        """
        request = stubs().operations.CancelOperationRequest(name=operation)
        for _ in range(2):  # the channel may be reset under the first
            try:
                self.call(self._service("Operations").CancelOperation, request, CANCEL)
            except Trouble as trouble:
                if trouble.code == "CANCELLED":
                    continue
            return

    def _ask(self, seconds: float) -> Abilities:
        s = stubs()
        request = s.re.GetCapabilitiesRequest(instance_name=self.instance)
        found = self.call(self._service("Capabilities").GetCapabilities, request, seconds)
        cache, runs = found.cache_capabilities, found.execution_capabilities
        names = frozenset(f for f in PREFERRED if f.number in cache.digest_functions)
        # The singular field is the older one; who fills in neither means those of its content.
        older = [runs.digest_function] if runs.digest_function else cache.digest_functions
        acts = runs.digest_functions or older
        most = cache.max_batch_total_size_bytes or MESSAGE
        return Abilities(
            batch=min(most, MESSAGE) - 64 * 1024,
            zstd=s.re.Compressor.ZSTD in cache.supported_compressors,
            executes=runs.exec_enabled,
            updates=cache.action_cache_update_capabilities.update_enabled,
            functions=names,
            runs=frozenset(f for f in names if f.number in acts),
        )
