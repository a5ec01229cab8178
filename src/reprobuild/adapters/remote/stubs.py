"""gRPC and the API's generated messages, loaded on first use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from reprobuild.adapters.extras import install_command
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class Stubs:
    """The modules: gRPC, REAPI messages and services, ByteStream, long-running operations."""

    grpc: Any
    re: Any
    services: Any
    stream: Any
    stream_services: Any
    operations: Any
    operation_services: Any


def require() -> None:
    """Raises E-TOOL-MISSING without the extra, before anything is fetched or built for a server."""
    for name in ("grpc", "buildstream"):
        if find_spec(name) is None:
            raise _missing(f"there is no module {name}")


@cache
def stubs() -> Stubs:
    """All of them; raises E-TOOL-MISSING without the extra."""
    # gRPC's fork handlers only get in the way of who forks to exec, as the sandbox does.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc
        from buildstream._protos.build.bazel.remote.execution.v2 import (
            remote_execution_pb2,
            remote_execution_pb2_grpc,
        )
        from buildstream._protos.google.bytestream import bytestream_pb2, bytestream_pb2_grpc
        from buildstream._protos.google.longrunning import operations_pb2, operations_pb2_grpc
    except ImportError as error:
        raise _missing(str(error)) from error
    return Stubs(
        grpc,
        remote_execution_pb2,
        remote_execution_pb2_grpc,
        bytestream_pb2,
        bytestream_pb2_grpc,
        operations_pb2,
        operations_pb2_grpc,
    )


def _missing(why: str) -> ReprobuildError:
    return ReprobuildError(
        "E-TOOL-MISSING",
        f"remote execution needs gRPC and the API's messages: {why}",
        hint=install_command("remote"),
    )
