"""A remote-execution server that does as it is told, also when that is to lie, to forget or to die.

It "runs" an action by joining, in order of their paths, all files below `in/` of the input root
and the command's last word; that is what each output holds, as `file`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from typing import Any

import grpc
import zstandard
from blake3 import blake3
from buildstream._protos.build.bazel.remote.execution.v2 import (
    remote_execution_pb2 as re,
)
from buildstream._protos.build.bazel.remote.execution.v2 import (
    remote_execution_pb2_grpc as services,
)
from buildstream._protos.google.bytestream import bytestream_pb2, bytestream_pb2_grpc
from buildstream._protos.google.longrunning import operations_pb2, operations_pb2_grpc

Code = grpc.StatusCode
EMPTY: Any = import_module("google.protobuf.empty_pb2").Empty  # without types

NAMES: dict[str, Callable[[bytes], str]] = {
    "SHA256": lambda data: sha256(data).hexdigest(),
    "BLAKE3": lambda data: blake3(data).hexdigest(),
}
"""Digest functions, as the API calls them."""

_CONTENT = ("FindMissingBlobs", "BatchUpdateBlobs", "BatchReadBlobs", "Write", "Read")


@dataclass
class Manners:
    """How a server behaves; counts go down as they are used up."""

    zstd: bool = False
    batch: int = 0
    executes: bool = True
    functions: Sequence[str] = ("SHA256",)
    """Digest functions of its content."""
    runs: Sequence[str] | None = None
    """Those of its actions, where it says so."""
    runs_one: str = ""
    """The one of its actions, said in the older field."""
    token: str = ""
    seconds: float = 0.0
    """How long an action takes."""
    seen: str = ""
    launches: bool = True
    """Whether it runs the launcher: else its input root is not `/`."""
    status: int = 0
    said: bytes = b""
    """What actions print; without it a few words."""
    heeds_limits: bool = True
    """Whether it sends no more than it was asked for."""
    refusals: int = 0
    """Executes that it answers with RESOURCE_EXHAUSTED."""
    drops: int = 0
    """Streams of Execute and WaitExecution that it breaks off."""
    unavailable: int = 0
    """Executes that fail before they begin."""
    forgets: int = 0
    """Actions at which it lacks content that it had."""
    broken_writes: int = 0
    broken_reads: int = 0
    lies: Callable[[bytes], bytes] | None = None
    """What it gives in place of an output file's content."""
    off: int = 0
    """Bytes by which it names output files too large."""
    loses: bool = False
    """Whether it names outputs that it does not have."""
    garbage: bool = False
    """Whether its Tree messages are none."""
    error: tuple[int, str] | None = None
    """The status of its answers."""
    frozen: bool = False
    """Whether it says nothing at all, until `Server.thaw`."""
    upstream: str = ""
    """`gone` or `stuck`: where it has its content from, which fails, or says nothing."""


@dataclass
class Server:
    """`url` is its address once it was started."""

    manners: Manners = field(default_factory=Manners)
    blobs: dict[str, bytes] = field(
        default_factory=lambda: {name(b""): b"" for name in NAMES.values()}
    )
    """By the digests of all functions."""
    results: dict[str, Any] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    spoken: set[str] = field(default_factory=set)
    """Digest functions that it was asked by."""
    received: int = 0
    outputs: set[str] = field(default_factory=set)
    partial: dict[str, bytearray] = field(default_factory=dict)
    operations: dict[str, futures.Future[Any]] = field(default_factory=dict)
    credentials: Any = None
    port: int = 0
    stopped: list[str] = field(default_factory=list)
    """Operations that were wished no more."""
    thawed: threading.Event = field(default_factory=threading.Event)
    _server: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _workers: futures.ThreadPoolExecutor = field(
        default_factory=lambda: futures.ThreadPoolExecutor(16)
    )

    @property
    def host(self) -> str:
        return f"localhost:{self.port}" if self.credentials else f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{'grpcs' if self.credentials else 'grpc'}://{self.host}"

    def start(self) -> Server:
        self._server = grpc.server(
            futures.ThreadPoolExecutor(32),
            options=[("grpc.max_receive_message_length", 4 * 2**20), ("grpc.so_reuseport", 0)],
        )
        generated: Any = services  # without types
        streams: Any = bytestream_pb2_grpc
        generated.add_CapabilitiesServicer_to_server(_Capabilities(self), self._server)
        generated.add_ContentAddressableStorageServicer_to_server(_Cas(self), self._server)
        generated.add_ActionCacheServicer_to_server(_Actions(self), self._server)
        generated.add_ExecutionServicer_to_server(_Execution(self), self._server)
        generated = operations_pb2_grpc
        generated.add_OperationsServicer_to_server(_Operations(self), self._server)
        streams.add_ByteStreamServicer_to_server(_Stream(self), self._server)
        address = f"127.0.0.1:{self.port}"
        if self.credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self.credentials)
        self._server.start()
        return self

    def stop(self) -> None:
        """As a killed process: what is open breaks off at once."""
        self.thawed.set()
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def put(self, data: bytes, function: str) -> Any:
        key = NAMES[function](data)
        self.blobs[key] = data
        return re.Digest(hash=key, size_bytes=len(data))

    def function(self, number: int) -> str:
        """The digest function of a request, which says it, and is one that is offered."""
        name = str(re.DigestFunction.Value.Name(number))
        assert name in self.manners.functions, f"{name} was never offered"
        self.spoken.add(name)
        return name

    def resource(self, name: str) -> tuple[str, str, int]:
        """The digest function of a resource's name, the digest and the size."""
        *head, key, size = name.split("/")
        assert "sha256" not in head, "it must be left out"
        function = "BLAKE3" if head[-1] == "blake3" else "SHA256"
        assert head[-2 if function == "BLAKE3" else -1] in ("blobs", "zstd")
        return self.function(re.DigestFunction.Value.Value(function)), key, int(size)

    def count(self, call: str) -> int:
        return self.calls.count(call)

    def note(self, call: str, context: Any) -> None:
        with self._lock:
            self.calls.append(call)
        if self.manners.frozen:
            self.thawed.wait()
        if self.manners.upstream and call in _CONTENT:
            if self.manners.upstream == "stuck":
                self.thawed.wait()
            context.abort(Code.UNAVAILABLE, "upstream: connection refused")
        token = self.manners.token
        if token and ("authorization", f"Bearer {token}") not in context.invocation_metadata():
            context.abort(Code.UNAUTHENTICATED, "who are you?")

    def use_up(self, name: str) -> bool:
        """Whether a count of the manners is left; it goes down."""
        with self._lock:
            left = getattr(self.manners, name)
            setattr(self.manners, name, max(0, left - 1))
            return bool(left > 0)

    def content(self, key: str) -> bytes | None:
        data = self.blobs.get(key)
        if data is not None and key in self.outputs:
            if self.manners.loses:
                return None
            if self.manners.lies is not None:
                return self.manners.lies(data)
        return data

    # -- running -----------------------------------------------------------------------------

    def run(self, key: str, function: str) -> Any:
        """The result of an action."""
        action = re.Action.FromString(self.blobs[key])
        command = re.Command.FromString(self.blobs[action.command_digest.hash])
        with self._lock:
            self.ran.append(command.arguments[-1])
        if self.manners.seconds:
            time.sleep(self.manners.seconds)
        files = dict(self._files(action.input_root_digest.hash, ""))
        assert "out/.launch" in files
        data = b"".join(v for k, v in sorted(files.items()) if k.startswith("in/"))
        data += command.arguments[-1].encode()
        result = re.ActionResult(exit_code=self.manners.status, stdout_raw=b"said something\n")
        if self.manners.said:
            result.stdout_raw = b""
            result.stdout_digest.CopyFrom(self.put(self.manners.said, function))
        result.execution_metadata.worker = "worker-7"
        for path in command.output_paths:
            name = path.rpartition("/")[2]
            if name == ".seen":
                if self.manners.launches:
                    result.output_files.add(
                        path=path, digest=self.put(self.manners.seen.encode(), function)
                    )
                continue
            file = self.put(data, function)
            self.outputs.add(file.hash)
            tree = re.Tree()
            tree.root.files.add(name="file", digest=file).digest.size_bytes += self.manners.off
            text = b"\xff\x00 no tree" if self.manners.garbage else tree.SerializeToString()
            result.output_directories.add(path=path, tree_digest=self.put(text, function))
        return result

    def _files(self, key: str, where: str) -> Iterator[tuple[str, bytes]]:
        directory = re.Directory.FromString(self.blobs[key])
        for file in directory.files:
            yield f"{where}{file.name}", self.blobs[file.digest.hash]
        for child in directory.directories:
            yield from self._files(child.digest.hash, f"{where}{child.name}/")


class _Capabilities(services.CapabilitiesServicer):
    def __init__(self, server: Server) -> None:
        self.server = server

    def GetCapabilities(self, request: Any, context: Any) -> Any:
        server = self.server
        server.note("GetCapabilities", context)
        out = re.ServerCapabilities()
        number = re.DigestFunction.Value.Value
        runs = out.execution_capabilities
        out.cache_capabilities.digest_functions.extend(map(number, server.manners.functions))
        if server.manners.runs is not None:
            runs.digest_functions.extend(map(number, server.manners.runs))
        if server.manners.runs_one:
            runs.digest_function = number(server.manners.runs_one)
        out.cache_capabilities.max_batch_total_size_bytes = server.manners.batch
        out.cache_capabilities.action_cache_update_capabilities.update_enabled = True
        if server.manners.zstd:
            out.cache_capabilities.supported_compressors.append(re.Compressor.ZSTD)
        runs.exec_enabled = server.manners.executes
        return out


class _Cas(services.ContentAddressableStorageServicer):
    def __init__(self, server: Server) -> None:
        self.server = server

    def FindMissingBlobs(self, request: Any, context: Any) -> Any:
        self.server.note("FindMissingBlobs", context)
        self.server.function(request.digest_function)
        return re.FindMissingBlobsResponse(
            missing_blob_digests=[
                d for d in request.blob_digests if d.hash not in self.server.blobs
            ]
        )

    def BatchUpdateBlobs(self, request: Any, context: Any) -> Any:
        self.server.note("BatchUpdateBlobs", context)
        function = self.server.function(request.digest_function)
        out = re.BatchUpdateBlobsResponse()
        for row in request.requests:
            assert NAMES[function](row.data) == row.digest.hash
            assert len(row.data) == row.digest.size_bytes
            self.server.put(row.data, function)
            self.server.received += len(row.data)
            out.responses.add(digest=row.digest)
        return out

    def BatchReadBlobs(self, request: Any, context: Any) -> Any:
        self.server.note("BatchReadBlobs", context)
        self.server.function(request.digest_function)
        out = re.BatchReadBlobsResponse()
        for digest in request.digests:
            data = self.server.content(digest.hash)
            row = out.responses.add(digest=digest, data=data or b"")
            if data is None:
                row.status.code = Code.NOT_FOUND.value[0]
        return out


class _Stream(bytestream_pb2_grpc.ByteStreamServicer):
    def __init__(self, server: Server) -> None:
        self.server = server

    def Write(self, requests: Any, context: Any) -> Any:
        server = self.server
        server.note("Write", context)
        breaks = server.use_up("broken_writes")
        name, kept = "", bytearray()
        for request in requests:
            if not name:
                name = request.resource_name
                kept = server.partial.setdefault(name, bytearray())
                if request.write_offset == 0:
                    kept.clear()
            assert request.write_offset == len(kept)
            kept += request.data
            server.received += len(request.data)
            if breaks and len(kept) >= 2**20:
                context.abort(Code.UNAVAILABLE, "the line went dead")
            if request.finish_write:
                break
        data = bytes(kept)
        if "/compressed-blobs/zstd/" in name:
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        function, key, size = server.resource(name)
        assert NAMES[function](data) == key
        assert len(data) == size
        server.put(data, function)
        return bytestream_pb2.WriteResponse(committed_size=len(kept))

    def QueryWriteStatus(self, request: Any, context: Any) -> Any:
        self.server.note("QueryWriteStatus", context)
        kept = self.server.partial.get(request.resource_name)
        if kept is None:
            context.abort(Code.NOT_FOUND, "never heard of it")
        assert kept is not None
        return bytestream_pb2.QueryWriteStatusResponse(committed_size=len(kept), complete=False)

    def Read(self, request: Any, context: Any) -> Iterator[Any]:
        server = self.server
        server.note("Read", context)
        breaks = server.use_up("broken_reads")
        _, key, _ = server.resource(request.resource_name)
        data = server.content(key)
        if data is None:
            context.abort(Code.NOT_FOUND, key)
        assert data is not None
        data = data[request.read_offset :]
        if request.read_limit and server.manners.heeds_limits:
            assert "compressed" not in request.resource_name
            data = data[: request.read_limit]
        if "compressed-blobs/zstd/" in request.resource_name:
            data = zstandard.ZstdCompressor().compress(data)
        for start in range(0, len(data), 2**18):
            if breaks and start:
                context.abort(Code.UNAVAILABLE, "the line went dead")
            yield bytestream_pb2.ReadResponse(data=data[start : start + 2**18])


class _Actions(services.ActionCacheServicer):
    def __init__(self, server: Server) -> None:
        self.server = server

    def GetActionResult(self, request: Any, context: Any) -> Any:
        self.server.note("GetActionResult", context)
        self.server.function(request.digest_function)
        found = self.server.results.get(request.action_digest.hash)
        if found is None:
            context.abort(Code.NOT_FOUND, "no such result")
        return found

    def UpdateActionResult(self, request: Any, context: Any) -> Any:
        self.server.note("UpdateActionResult", context)
        self.server.function(request.digest_function)
        for row in request.action_result.output_directories:
            tree = re.Tree.FromString(self.server.blobs[row.tree_digest.hash])
            for directory in (tree.root, *tree.children):
                for file in directory.files:  # as a server that checks for completeness
                    assert file.digest.hash in self.server.blobs
        self.server.results[request.action_digest.hash] = request.action_result
        return request.action_result


class _Execution(services.ExecutionServicer):
    def __init__(self, server: Server) -> None:
        self.server = server

    def Execute(self, request: Any, context: Any) -> Iterator[Any]:
        server, key = self.server, request.action_digest.hash
        server.note("Execute", context)
        function = server.function(request.digest_function)
        if server.use_up("refusals"):
            context.abort(Code.RESOURCE_EXHAUSTED, "too much to do")
        if server.use_up("unavailable"):
            context.abort(Code.UNAVAILABLE, "not now")
        name = f"operations/{len(server.operations)}-{key}"
        if server.manners.error is not None:
            code, message = server.manners.error
            response = re.ExecuteResponse()
            response.status.code, response.status.message = code, message
            yield _done(name, response)
            return
        if server.use_up("forgets"):
            action = re.Action.FromString(server.blobs[key])
            server.blobs.pop(action.input_root_digest.hash)
            response = re.ExecuteResponse()
            response.status.code = Code.FAILED_PRECONDITION.value[0]
            yield _done(name, response)
            return
        cached = server.results.get(key)
        if cached is not None and not request.skip_cache_lookup:
            yield _done(name, re.ExecuteResponse(result=cached, cached_result=True))
            return
        server.operations[name] = server._workers.submit(self._run, key, function)
        yield from self._follow(name, context)

    def _run(self, key: str, function: str) -> Any:
        result = self.server.run(key, function)
        if not result.exit_code:
            self.server.results[key] = result
        return re.ExecuteResponse(result=result)

    def WaitExecution(self, request: Any, context: Any) -> Iterator[Any]:
        self.server.note("WaitExecution", context)
        if request.name not in self.server.operations:
            context.abort(Code.NOT_FOUND, "no such operation")
        yield from self._follow(request.name, context)

    def _follow(self, name: str, context: Any) -> Iterator[Any]:
        yield operations_pb2.Operation(name=name)
        if self.server.use_up("drops"):
            context.abort(Code.UNAVAILABLE, "the line went dead")
        yield _done(name, self.server.operations[name].result())


class _Operations(operations_pb2_grpc.OperationsServicer):
    def __init__(self, server: Server) -> None:
        self.server = server

    def CancelOperation(self, request: Any, context: Any) -> Any:
        self.server.note("CancelOperation", context)
        self.server.stopped.append(request.name)
        return EMPTY()


def _done(name: str, response: Any) -> Any:
    operation = operations_pb2.Operation(name=name, done=True)
    operation.response.Pack(response)
    return operation
