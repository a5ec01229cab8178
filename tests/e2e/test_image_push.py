"""Pushing to a real registry, and to ones that are not well."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from fakes.memory_store import MemoryStore
from reprobuild.adapters.docker.push import RegistrySink
from reprobuild.adapters.oci.archive import write_directory
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.oci.layout import open_layout, read_layout
from reprobuild.adapters.oci.storelayout import read_image
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from support.images import image, layer, quick_image
from support.registry import LOGIN, running


@pytest.fixture(autouse=True)
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "docker"
    home.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(home))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none.json"))
    return home


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


@pytest.fixture
def tree(store: MemoryStore) -> Digest:
    return quick_image(store)


def config_of(store: MemoryStore, tree: Digest) -> bytes:
    with open_layout(store.materialise(tree)) as files:
        facts = read_layout(files)
        with files.open(f"blobs/sha256/{facts.config_digest.hex}") as source:
            return source.read()


def test_push_and_pull_back(store: MemoryStore, tree: Digest, tmp_path: Path) -> None:
    facts = read_image(store, tree)
    with running(tmp_path) as host:
        sink = RegistrySink(backoff=0)
        answer = sink.put(store.materialise(tree), f"{host}/some/image:v1")
        assert answer == {
            "reference": f"{host}/some/image:v1",
            "manifest_digest": str(facts.manifest_digest),
            "uploaded": "3",
            "mounted": "0",
            "present": "0",
            "sent": str(sum(la.size for la in facts.layers) + len(config_of(store, tree))),
        }
        again = sink.put(store.materialise(tree), f"{host}/some/image:v2")
        assert (again["uploaded"], again["present"]) == ("0", "3")
        for tag in ("v1", "v2", str(facts.manifest_digest)):
            got = requests.get(f"http://{host}/v2/some/image/manifests/{tag}", timeout=9, headers={
                "Accept": "application/vnd.oci.image.manifest.v1+json"})  # fmt: skip
            assert hashlib.sha256(got.content).hexdigest() == facts.manifest_digest.hex
        for one in facts.layers:
            blob = requests.get(f"http://{host}/v2/some/image/blobs/{one.digest}", timeout=9)
            assert hashlib.sha256(blob.content).hexdigest() == one.digest.hex


def test_a_changed_component_sends_its_layer_alone(store: MemoryStore, tmp_path: Path) -> None:
    one = layer(store, {"a": b"1" * 9000})
    first = image(store, {"one": one, "two": layer(store, {"b": b"1"})})
    second = image(store, {"one": one, "two": layer(store, {"b": b"2"})})
    with running(tmp_path) as host:
        sink = RegistrySink(backoff=0)
        sink.put(store.materialise(first), f"{host}/x:1")
        answer = sink.put(store.materialise(second), f"{host}/x:2")
    assert (answer["uploaded"], answer["present"]) == ("2", "1")  # the layer, and the config


def test_with_a_login(store: MemoryStore, tree: Digest, tmp_path: Path, no_logins: Path) -> None:
    with running(tmp_path, login=True) as host:
        reference = f"{host}/private/image:1"
        with pytest.raises(ReprobuildError) as error:
            RegistrySink(backoff=0).put(store.materialise(tree), reference)
        assert error.value.code == "E-REGISTRY"
        assert error.value.facts["status"] == 401
        assert error.value.hint == f"run `docker login {host}`"
        (no_logins / "config.json").write_text(json.dumps({"auths": {host: {"auth": LOGIN}}}))
        answer = RegistrySink(backoff=0).put(store.materialise(tree), reference)
        assert answer["uploaded"] == "3"


def test_a_damaged_layer_is_not_tagged(store: MemoryStore, tree: Digest, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    with open_layout(store.materialise(tree)) as files:
        facts = read_layout(files)
        write_directory(files, facts, "x:1", bad)
    blob = bad / f"blobs/sha256/{facts.layers[0].digest.hex}"
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    with running(tmp_path) as host:
        with pytest.raises(ReprobuildError) as error:
            RegistrySink(backoff=0).put(bad, f"{host}/x:1")
        assert error.value.code in ("E-IMAGE-VERIFY", "E-REGISTRY")
        got = requests.get(f"http://{host}/v2/x/manifests/1", timeout=9)
        assert got.status_code == 404


@pytest.mark.parametrize("reference", ["UPPER/x:1", "oci:/x", f"a.b/c@sha256:{'0' * 64}", ""])
def test_references_that_are_off(store: MemoryStore, tree: Digest, reference: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        RegistrySink().put(store.materialise(tree), reference)
    assert error.value.code == "E-OCI-REFERENCE"


def test_dirty_and_offline(store: MemoryStore) -> None:
    one = {"one": layer(store, {"a": b""})}
    dirty = store.materialise(image(store, one, config={"labels": {"p.dirty": "vllm"}}))
    with pytest.raises(ReprobuildError) as error:
        Images().push(dirty, "a.b/c:1")
    assert (error.value.code, error.value.exit_status) == ("E-IMAGE-DIRTY", 9)
    with pytest.raises(ReprobuildError) as error:
        Images(offline=True).push(dirty, "a.b/c:1", dirty=True)
    assert (error.value.code, error.value.exit_status) == ("E-OFFLINE", 8)


# -- registries that are not well ----------------------------------------------------------------


class Sick(http.server.BaseHTTPRequestHandler):
    """A registry that counts, and whose answers a test overrides by (method, n-th call)."""

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        server: Any = self.server
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        server.calls.append((self.command, self.path, self.headers.get("Authorization")))
        count = sum(call[0] == self.command for call in server.calls)
        status, headers, answer = server.behave(self.command, self.path, count, body)
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_POST = do_PUT = _serve


Behaviour = Callable[[str, str, int, bytes], tuple[int, dict[str, str], bytes]]


@pytest.fixture
def sick() -> Iterator[Callable[[Behaviour], Any]]:
    servers: list[Any] = []

    def start(behave: Behaviour) -> Any:
        server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sick)
        server.behave, server.calls = behave, []
        server.host = f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def good(method: str, path: str, _: int, __: bytes) -> tuple[int, dict[str, str], bytes]:
    """Everything is there but blobs, and every upload is taken."""
    if method == "HEAD":
        return 404, {}, b""
    if method == "POST":
        return 202, {"Location": "/upload/1?state=x"}, b""
    return 201, {}, b""


def test_busy_registries_are_asked_again(
    store: MemoryStore, tree: Digest, sick: Callable[[Behaviour], Any]
) -> None:
    sent: dict[str, bytes] = {}

    def behave(method: str, path: str, count: int, body: bytes) -> Any:
        if count in (1, 3):
            return (503, {"Retry-After": "0"}, b"") if method != "GET" else (502, {}, b"")
        if method == "PUT" and "/manifests/" in path:
            sent["manifest"] = body
        if method == "GET":
            return 200, {}, sent["manifest"]
        return good(method, path, count, body)

    server = sick(behave)
    answer = RegistrySink(backoff=0).put(store.materialise(tree), f"{server.host}/x:1")
    assert answer["uploaded"] == "3"
    paths = [path for method, path, _ in server.calls if method == "PUT"]
    assert all("state=x&digest=sha256" in path for path in paths if "/upload/" in path)
    assert "/manifests/" in paths[-1]


@pytest.mark.parametrize("status", [400, 403, 404, 413, 500])
def test_refusals_end_it(
    store: MemoryStore, tree: Digest, sick: Callable[[Behaviour], Any], status: int
) -> None:
    def behave(method: str, path: str, count: int, body: bytes) -> Any:
        if method == "PUT":
            return status, {}, b""
        return good(method, path, count, body)

    server = sick(behave)
    with pytest.raises(ReprobuildError) as error:
        RegistrySink(backoff=0).put(store.materialise(tree), f"{server.host}/x:1")
    assert (error.value.code, error.value.facts["status"]) == ("E-REGISTRY", status)
    assert not [path for method, path, _ in server.calls if "/manifests/" in path]


def test_another_manifest_than_was_sent(
    store: MemoryStore, tree: Digest, sick: Callable[[Behaviour], Any]
) -> None:
    def behave(method: str, path: str, count: int, body: bytes) -> Any:
        return (200, {}, b"{}") if method == "GET" else good(method, path, count, body)

    server = sick(behave)
    with pytest.raises(ReprobuildError) as error:
        RegistrySink(backoff=0).put(store.materialise(tree), f"{server.host}/x:1")
    assert error.value.code == "E-IMAGE-VERIFY"


def test_tokens_stay_with_the_registry(
    store: MemoryStore, tree: Digest, sick: Callable[[Behaviour], Any], no_logins: Path
) -> None:
    """A token is asked for with the right scope, and the upload's other host never sees it."""
    elsewhere = sick(lambda *_: (201, {}, b""))
    sent: dict[str, bytes] = {}

    def behave(method: str, path: str, count: int, body: bytes) -> Any:
        if path.startswith("/token"):
            return 200, {}, b'{"token": "secret-token"}'
        if server.calls[-1][2] != "Bearer secret-token":
            challenge = f'Bearer realm="http://{server.host}/token",service="here"'
            return 401, {"WWW-Authenticate": challenge}, b""
        if method == "POST":
            return 202, {"Location": f"http://{elsewhere.host}/up"}, b""
        if method == "PUT":
            sent["manifest"] = body
        if method == "GET":
            return 200, {}, sent["manifest"]
        return good(method, path, count, body)

    server = sick(behave)
    (no_logins / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": LOGIN}}}))
    RegistrySink(backoff=0).put(store.materialise(tree), f"{server.host}/a/b:1")
    asked = [call for call in server.calls if call[1].startswith("/token")]
    assert len(asked) == 1
    assert "scope=repository%3Aa%2Fb%3Apull%2Cpush" in asked[0][1]
    assert asked[0][2] == f"Basic {LOGIN}"
    assert len(elsewhere.calls) == 3
    assert {call[2] for call in elsewhere.calls} == {None}


def test_nobody_there(store: MemoryStore, tree: Digest) -> None:
    with pytest.raises(ReprobuildError) as error:
        RegistrySink(backoff=0).put(store.materialise(tree), "127.0.0.1:1/x:1")
    assert (error.value.code, error.value.exit_status) == ("E-REGISTRY", 10)
