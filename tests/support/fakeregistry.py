"""A registry in memory that keeps to the distribution specification, and faults on request."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Mapping[str, str], bytes]
CUT = "cut"
"""What a fault returns to take half of a request's body and drop the connection."""

Fault = Callable[[str, str, int], "Answer | str | None"]
"""(method, path, how many of that method came before) → an answer, CUT, or None: all is well."""


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class FakeRegistry:
    """What it holds; `calls` are (method, path, bytes of body)."""

    host: str = ""
    referrers_api: bool = False
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    fault: Fault = lambda *_: None
    _next: int = 0

    def tags(self, repository: str) -> set[str]:
        """The names in a repository that are no digests."""
        return {n for r, n in self.manifests if r == repository and not n.startswith("sha256:")}

    def sent(self) -> int:
        """Bytes of blobs that came in."""
        return sum(n for method, path, n in self.calls if "/uploads/" in path)

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Answer:
        """As the specification says."""
        url = urlsplit(target)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        parts = url.path.removeprefix("/v2/").split("/")
        if "uploads" in parts:
            at = parts.index("blobs")
            repository, upload = "/".join(parts[:at]), parts[-1]
            return self._upload(method, repository, upload, query, headers, body)
        kind, name, repository = parts[-2], parts[-1], "/".join(parts[:-2])
        if kind == "blobs":
            data = self.blobs.get((repository, name))
            return (404, {}, b"") if data is None else (200, {}, data)
        if kind == "referrers":
            if not self.referrers_api:
                return 404, {}, b""
            return 200, {}, json.dumps({"manifests": self._referring(repository, name)}).encode()
        if method == "PUT":
            return self._put_manifest(repository, name, headers.get("Content-Type", ""), body)
        found = self.manifests.get((repository, name))
        return (404, {}, b"") if found is None else (200, {"Content-Type": found[0]}, found[1])

    def _referring(self, repository: str, subject: str) -> list[dict[str, Any]]:
        out = []
        for (where, name), (media_type, data) in self.manifests.items():
            document = json.loads(data)
            refers = (document.get("subject") or {}).get("digest") == subject
            if refers and where == repository and name.startswith("sha256:"):
                out.append({"mediaType": media_type, "digest": name, "size": len(data),
                                "artifactType": document.get("artifactType")})  # fmt: skip
        return out

    def _put_manifest(self, repository: str, name: str, media_type: str, body: bytes) -> Answer:
        document = json.loads(body)
        for blob in [document.get("config"), *document.get("layers", [])]:
            if blob is not None and (repository, blob["digest"]) not in self.blobs:
                return 404, {}, b"MANIFEST_BLOB_UNKNOWN"
        if name.startswith("sha256:") and name != digest_of(body):
            return 400, {}, b"DIGEST_INVALID"
        self.manifests[repository, digest_of(body)] = (media_type, body)
        self.manifests[repository, name] = (media_type, body)
        subject = (document.get("subject") or {}).get("digest")
        return 201, ({"OCI-Subject": subject} if subject and self.referrers_api else {}), b""

    def _upload(
        self,
        method: str,
        repository: str,
        upload: str,
        query: Mapping[str, str],
        headers: Any,
        body: bytes,
    ) -> Answer:
        if method == "POST":
            mounted = self.blobs.get((query.get("from", ""), query.get("mount", "")))
            if mounted is not None:
                self.blobs[repository, query["mount"]] = mounted
                return 201, {}, b""
            self._next += 1
            self.uploads[str(self._next)] = bytearray()
            return 202, self._stands(repository, str(self._next)), b""
        if upload not in self.uploads:
            return 404, {}, b"BLOB_UPLOAD_UNKNOWN"
        data = self.uploads[upload]
        if method == "PATCH":
            start = int(headers["Content-Range"].partition("-")[0])
            if start != len(data):
                return 416, self._stands(repository, upload), b""
            data += body
            return 202, self._stands(repository, upload), b""
        if method == "GET":
            return 204, self._stands(repository, upload), b""
        data += body
        if digest_of(bytes(data)) != query["digest"]:
            return 400, {}, b"DIGEST_INVALID"
        self.blobs[repository, query["digest"]] = bytes(self.uploads.pop(upload))
        return 201, {"Docker-Content-Digest": query["digest"]}, b""

    def _stands(self, repository: str, upload: str) -> dict[str, str]:
        end = max(0, len(self.uploads[upload]) - 1)
        return {"Location": f"/v2/{repository}/blobs/uploads/{upload}", "Range": f"0-{end}"}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        registry: FakeRegistry = self.server.registry  # type: ignore[attr-defined]
        before = sum(call[0] == self.command for call in registry.calls)
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        fault = registry.fault(self.command, self.path, before)
        if fault == CUT:
            half = body[: length // 2]
            registry.calls.append((self.command, self.path, len(half)))
            registry.answer(self.command, self.path, self.headers, half)
            self.close_connection = True
            self.connection.close()
            return
        registry.calls.append((self.command, self.path, length))
        status, headers, answer = (
            fault
            if isinstance(fault, tuple)
            else registry.answer(self.command, self.path, self.headers, body)
        )
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _serve


@contextmanager
def fake_registry(**options: Any) -> Iterator[FakeRegistry]:
    """One that listens, for the `with` block."""
    registry = FakeRegistry(**options)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.registry = registry  # type: ignore[attr-defined]
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
