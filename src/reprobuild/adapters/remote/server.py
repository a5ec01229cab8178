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
        self._made: dict[str, Any] = {}
        self._abilities: Abilities | None = None

    # -- channel and services ----------------------------------------------------------------

    @property
    def channel(self) -> Any:
        """The channel, opened on first use."""
        with self._lock:
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
        """Ends all calls."""
        with self._lock:
            channel, self._channel = self._channel, None
            self._made.clear()
        if channel is not None:
            channel.close()

    def reset(self) -> None:
        """Ends all calls that are under way; later ones go over a new connection.

        A call whose server is cut off would else wait for its own deadline.
        """
        self.close()

    def _service(self, kind: str) -> Any:
        channel = self.channel
        with self._lock:
            if self._channel is not channel:
                self._made.clear()
            if kind not in self._made:
                s = stubs()
                home = s.stream_services if kind == "ByteStream" else s.services
                self._made[kind] = getattr(home, f"{kind}Stub")(channel)
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
            self._abilities = self._ask(20.0)
        return self._abilities

    def answers(self, seconds: float) -> bool:
        """Whether it says anything at all within that time."""
        try:
            self._ask(seconds)
        except Trouble:
            return False
        return True

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
