"""The real docker-registry, with and without a login, filled by skopeo."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from fakes.memory_store import MemoryStore
from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.fetchers import file_fetchers
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.core.derivation import FixedOutput
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.ociparts import Image, write_layout

LACKING = [tool for tool in ("docker-registry", "skopeo") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)}")

# user:geheim
HTPASSWD = "user:$2b$04$p0Q7BaaWkkjegmWNhylGQ.m0/LOltAmG4vtEvDICfDyGw/MORvRqy\n"
LOGIN = b64encode(b"user:geheim").decode()


@dataclass(frozen=True)
class Registry:
    host: str
    image: Image


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module", params=["open", "login"])
def registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Registry]:
    home = tmp_path_factory.mktemp("registry")
    host = f"127.0.0.1:{_free_port()}"
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(home / "data")}},
        "http": {"addr": host},
    }
    login = []
    if request.param == "login":
        (home / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "here", "path": str(home / "htpasswd")}}
        login = ["--dest-creds", "user:geheim"]
    (home / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    process = subprocess.Popen(["docker-registry", "serve", str(home / "config.yml")])
    try:
        for _ in range(200):
            try:
                requests.get(f"http://{host}/v2/", timeout=5)
                break
            except requests.ConnectionError:
                time.sleep(0.05)
        image = Image([b"a layer\n" * 4000, b"another"])
        layout = write_layout(home / "layout", image)
        subprocess.run(
            ["skopeo", "copy", "--preserve-digests", "--dest-tls-verify=false", *login,
             f"oci:{layout}", f"docker://{host}/some/image:1"],
            check=True, capture_output=True,
        )  # fmt: skip
        yield Registry(host, image)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def docker_home(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `docker login` would have left."""
    home = tmp_path / "docker"
    home.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(home))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none.json"))
    (home / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": LOGIN}}}))
    return home


def settings(tmp_path: Path) -> FetchSettings:
    return FetchSettings(tmp_path / "partial", backoff=0.0, attempts=2)


def test_an_image_is_pinned_and_fetched(registry: Registry, tmp_path: Path) -> None:
    reference = f"{registry.host}/some/image:1"
    pin = Discovery(settings(tmp_path)).oci(reference, tmp_path)
    assert str(pin) == registry.image.digest
    store = MemoryStore(tmp_path / "materialised")
    fetcher = file_fetchers(store, settings(tmp_path), base=tmp_path)["oci"]
    fixed = FixedOutput("oci-image", sha256=pin)
    tree = fetcher.fetch(fixed, {"kind": "oci", "reference": reference}, Recorder())
    path = store.materialise(tree)
    subprocess.run(
        ["skopeo", "copy", f"oci:{path}", f"oci:{tmp_path / 'copy'}"],
        check=True, capture_output=True,
    )  # fmt: skip
    assert set(registry.image.blobs.values()) <= set(store.blobs.values())


def test_a_wrong_login_is_refused(
    registry: Registry, tmp_path: Path, docker_home: Path, request: pytest.FixtureRequest
) -> None:
    wrong = b64encode(b"user:falsch").decode()
    (docker_home / "config.json").write_text(
        json.dumps({"auths": {registry.host: {"auth": wrong}}})
    )
    discovery = Discovery(settings(tmp_path))
    if "open" in request.node.name:
        assert str(discovery.oci(f"{registry.host}/some/image:1", tmp_path))
        return
    with pytest.raises(ReprobuildError) as caught:
        discovery.oci(f"{registry.host}/some/image:1", tmp_path)
    assert caught.value.code == "E-FETCH"
    assert "401" in caught.value.message
    assert "falsch" not in str(caught.value.as_document())
