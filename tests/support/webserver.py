"""A web server of this process that misbehaves on demand."""

from __future__ import annotations

import http.server
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

Headers = dict[str, str]


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of a plain answer.

    `kind`: `status` (answer `number`), `cut` (close after `number` body bytes), `endless` (never
    stop sending), `stall` (send `number` bytes, then nothing), `reset` (close without an answer),
    `whole` (ignore Range), `redirect` (to `location`), `unframed` (declare no length; the end is
    the connection's), `chunked` (HTTP/1.1 chunks).
    """

    kind: str
    number: int = 0
    location: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Resource:
    """A body under a path. `faults` are used up one a request; `always` stays."""

    body: bytes = b""
    content_type: str = "application/octet-stream"
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    etag: str = ""
    authorization: str = ""
    challenge: str = ""
    headers: Headers = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""


class WebServer:
    """Resources by path (with query); 404 for all else. Everything asked is in `seen`."""

    def __init__(self, tls: Path | None = None) -> None:
        self.resources: dict[str, Resource] = {}
        self.seen: list[Seen] = []
        self.closing = threading.Event()
        outer = self

        class Handler(_Handler):
            web = outer

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._scheme = "http"
        if tls is not None:  # a file with key and certificate
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    @property
    def host(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT` (or https), without a slash."""
        return f"{self._scheme}://{self.host}"

    def put(self, path: str, body: bytes, **fields: object) -> Resource:
        """Adds a resource."""
        resource = self.resources[path] = Resource(body, **fields)  # type: ignore[arg-type]
        return resource

    def requests(self, path: str) -> list[Seen]:
        """What was asked of one path."""
        return [seen for seen in self.seen if seen.path == path]

    def close(self) -> None:
        """Stops answering."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are what the tests are about."""


class _Handler(http.server.BaseHTTPRequestHandler):
    web: WebServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length) if length else b""
        self.web.seen.append(Seen(self.command, self.path, dict(self.headers), body))
        with suppress(OSError):
            self._answer(self.web.resources.get(self.path))

    def _answer(self, resource: Resource | None) -> None:
        if resource is None:
            self._send(404, b"no", {})
            return
        given = self.headers.get("Authorization", "")
        if resource.authorization and given != resource.authorization:
            self._send(401, b"login", {"WWW-Authenticate": resource.challenge or 'Basic realm="x"'})
            return
        fault = resource.faults.pop(0) if resource.faults else resource.always
        if fault is not None and fault.kind in ("status", "redirect", "reset", "endless"):
            self._misbehave(fault)
            return
        start = 0
        wanted = re.match(r"bytes=(\d+)-\Z", self.headers.get("Range", ""))
        stale = self.headers.get("If-Range", resource.etag) != resource.etag
        if wanted and not stale and not (fault and fault.kind == "whole"):
            start = int(wanted[1])
            if start >= len(resource.body):
                self._send(416, b"", {"Content-Range": f"bytes */{len(resource.body)}"})
                return
        self._body(resource, start, fault)

    def _body(self, resource: Resource, start: int, fault: Fault | None) -> None:
        body = resource.body[start:]
        headers = {"Content-Type": resource.content_type, **resource.headers}
        if resource.etag:
            headers["ETag"] = resource.etag
        if start:
            end = len(resource.body)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{end}"
        if fault and fault.kind in ("chunked", "unframed"):
            chunked = fault.kind == "chunked"
            headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Connection": "close"}
            self._head(206 if start else 200, headers)
            if chunked and body:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            self.wfile.write(b"0\r\n\r\n" if chunked else body)
            self.close_connection = True
            return
        headers["Content-Length"] = str(len(body))
        self._head(206 if start else 200, headers)
        if self.command == "HEAD":
            return
        if fault and fault.kind in ("cut", "stall"):
            self.wfile.write(body[: fault.number])
            self.wfile.flush()
            if fault.kind == "stall":
                self.web.closing.wait(30)
            self._hang_up()
            return
        self.wfile.write(body)

    def _misbehave(self, fault: Fault) -> None:
        if fault.kind == "reset":
            self._hang_up()
        elif fault.kind == "endless":
            self._head(200, {"Connection": "close", **dict(fault.headers)})
            while not self.web.closing.is_set():
                self.wfile.write(bytes(65536))
        elif fault.kind == "redirect":
            self._send(fault.number or 302, b"", {"Location": fault.location})
        else:
            self._send(fault.number, b"oops", dict(fault.headers))

    def _send(self, status: int, body: bytes, headers: Headers) -> None:
        self._head(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, headers: Headers) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def web_server(tls: Path | None = None) -> Iterator[WebServer]:
    """A running server, stopped at the end."""
    server = WebServer(tls)
    try:
        yield server
    finally:
        if not server.closing.is_set():
            server.close()
