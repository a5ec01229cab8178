"""Proxies and certificate authorities: the user's count, and only those."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.http import Access, Http, TransferError
from reprobuild.adapters.fetch.pipconfig import PipConfig
from reprobuild.adapters.fetch.places import Places
from reprobuild.adapters.fetch.settings import FetchSettings
from support.webserver import WebServer, web_server

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def http(tmp_path: Path, access: Access | None = None) -> Http:
    return Http(FetchSettings(tmp_path / "partial", backoff=0.0, attempts=1), access)


def test_a_proxy_of_the_configuration_is_used(web: WebServer, tmp_path: Path) -> None:
    web.put("http://host.invalid/x", b"through the proxy")
    access = Access(proxies={"http": web.url})
    assert http(tmp_path, access).read("http://host.invalid/x").body == b"through the proxy"


def test_a_proxy_of_the_environment_is_used(
    web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.put("http://host.invalid/x", b"through the proxy")
    monkeypatch.setenv("http_proxy", web.url.replace("http://", "http://user:wort@"))
    assert http(tmp_path).read("http://host.invalid/x").body == b"through the proxy"
    assert "Proxy-Authorization" in web.seen[0].headers


def test_the_proxy_of_pip_reaches_the_index(web: WebServer, tmp_path: Path) -> None:
    name = "thing-1.0-py3-none-any.whl"
    page = f'<a href="{name}">{name}</a>'.encode()
    web.put("http://index.invalid/simple/thing/", page, content_type="text/html")
    web.put(f"http://index.invalid/simple/thing/{name}", b"wheel")
    options = FetchSettings(tmp_path / "partial", backoff=0.0, attempts=1)
    config = PipConfig(("http://index.invalid/simple",), proxy=web.url)
    pin = Discovery(options, places=lambda: Places(options, pip=config)).wheel("thing", "1.0")
    assert pin.sha256.hex == hashlib.sha256(b"wheel").hexdigest()


def test_a_netrc_is_minded(web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password geheim\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    web.put("/x", b"private", authorization="Basic dXNlcjpnZWhlaW0=")
    assert http(tmp_path).read(f"{web.url}/x").body == b"private"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its self-signed certificate for 127.0.0.1, in one file."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(path), "-out", str(path) + ".crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    authority = path.with_name("server.pem.crt")
    path.write_text(path.read_text() + authority.read_text())
    return path


@needs_openssl
def test_an_unknown_authority_is_refused(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server(certificate) as web:
        web.put("/x", b"secure")
        with pytest.raises(TransferError, match="certificate is not accepted"):
            http(tmp_path).read(f"{web.url}/x")
        trusted = Access(trusted_hosts=frozenset({"127.0.0.1"}))
        assert http(tmp_path, trusted).read(f"{web.url}/x").body == b"secure"


@needs_openssl
def test_the_authority_of_the_configuration_counts(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = str(certificate) + ".crt"
    with web_server(certificate) as web:
        web.put("/x", b"secure")
        assert http(tmp_path, Access(verify=authority)).read(f"{web.url}/x").body == b"secure"
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority)
        assert http(tmp_path).read(f"{web.url}/x").body == b"secure"
