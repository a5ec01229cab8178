"""What is said where there is no daemon, or one that does not tell the truth."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.docker.sink import DockerSink, check_loaded
from reprobuild.adapters.oci.storelayout import read_image
from reprobuild.adapters.offline import seal
from reprobuild.errors import ReprobuildError
from support.images import quick_image


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    store = MemoryStore(tmp_path / "store")
    return store.materialise(quick_image(store))


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "ftp://x"])
def test_no_daemon(layout: Path, host: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        DockerSink(host).put(layout, "a:1")
    assert error.value.code == "E-DOCKER-UNAVAILABLE"
    assert error.value.exit_status == 10
    assert "image save" in error.value.hint
    assert "Error(" not in error.value.message and "('" not in error.value.message


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("unix:///nowhere/docker.sock", "No such file or directory"),
        ("tcp://127.0.0.1:1", "Connection refused"),
    ],
)
def test_doctor_asks_the_daemon(
    host: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    from reprobuild.cli.main import run

    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("REPROBUILD_STORE", str(tmp_path / "store"))
    run(["--json", "doctor"])
    answer, _ = json.JSONDecoder().raw_decode(capsys.readouterr().out)
    (row,) = [row for row in answer["checks"] if row["what"] == "dockerd"]
    assert row["state"] == "absent" and row["detail"].endswith(why)
    assert "dockerd" not in answer["missing"]


@pytest.mark.parametrize("scheme", ["tcp", "ssh", "http"])
@pytest.mark.parametrize("secret", ["user:geheim", "user:geh/eim", "user:geheim@x"])
def test_no_daemon_s_password_is_shown(
    layout: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, secret: str
) -> None:
    host = f"{scheme}://{secret}@127.0.0.1:1"
    monkeypatch.setenv("DOCKER_HOST", host)
    for sink in (DockerSink(), DockerSink(host)):
        with pytest.raises(ReprobuildError) as error:
            sink.put(layout, "a:1")
        assert error.value.code == "E-DOCKER-UNAVAILABLE"
        assert "eim" not in str(error.value.as_document())
    monkeypatch.setattr(seal, "_SEALED", [True])
    with pytest.raises(ReprobuildError) as error:
        DockerSink().put(layout, "a:1")
    assert error.value.code == "E-OFFLINE"
    assert error.value.facts["host"] == f"{scheme}://127.0.0.1:1"


def test_no_daemon_where_the_environment_says(layout: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(ReprobuildError) as error:
        DockerSink().put(layout, "a:1")
    assert error.value.code == "E-DOCKER-UNAVAILABLE"


@pytest.fixture
def rude_daemon(tmp_path: Path) -> Iterator[str]:
    """Answers a ping, and breaks off when an image is sent."""
    path = tmp_path / "d.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(65536)
                if b"/_ping" in request or b"/version" in request:
                    body = b'{"ApiVersion": "1.41"}'
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\n"
                        b"Content-Type: application/json\r\nConnection: close\r\n"
                        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
                    )

    threading.Thread(target=serve, daemon=True).start()
    yield f"unix://{path}"
    server.close()


def test_a_daemon_that_breaks_off(layout: Path, rude_daemon: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        DockerSink(rude_daemon).put(layout, "a:1")
    assert error.value.code == "E-DOCKER"


def test_a_daemon_that_has_something_else(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "store")
    facts = read_image(store, quick_image(store))
    good: dict[str, Any] = {
        "Id": str(facts.config_digest),
        "RootFS": {"Layers": [str(la.diff_id) for la in facts.layers]},
        "Config": {"Labels": dict(facts.labels)},
    }
    check_loaded(facts, good)
    check_loaded(facts, {**good, "Id": str(facts.manifest_digest)})
    wrong: list[dict[str, Any]] = [
        {"Id": "sha256:" + "0" * 64},
        {"RootFS": {"Layers": good["RootFS"]["Layers"][:1]}},
        {"RootFS": {}},
        {"Config": {"Labels": {**facts.labels, "extra": "1"}}},
        {"Config": {"Labels": None}},
        {"Config": None},
    ]
    for change in wrong:
        with pytest.raises(ReprobuildError) as error:
            check_loaded(facts, {**good, **change})
        assert error.value.code == "E-IMAGE-VERIFY"
        assert error.value.exit_status == 9
