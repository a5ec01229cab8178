"""Servers, indexes and files made to break out, to exhaust, or to make secrets show."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from fakes.memory_store import MemoryStore
from reprobuild.adapters.fetch.aptsources import AptConfig, Archive
from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.fetchers import Fetchers, file_fetchers
from reprobuild.adapters.fetch.http import Access, Http, TransferError
from reprobuild.adapters.fetch.http.session import Session
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.fetch.pipconfig import PipConfig
from reprobuild.adapters.fetch.places import Places
from reprobuild.adapters.fetch.redact import redact, split_credentials
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.adapters.substituter.registry import repository_of
from reprobuild.cli import main as cli
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.redact import redact as redact_text
from reprobuild.errors import ReprobuildError
from support.debarchive import DebArchive, missing_tools, signer
from support.events import Recorder
from support.webserver import Fault, WebServer, web_server

BODY = b"pinned"
DIGEST = hashlib.sha256(BODY).hexdigest()
SECRET = "geheimes-wort"


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def settings(tmp_path: Path, **changes: object) -> FetchSettings:
    fields: dict[str, object] = {"backoff": 0.0, "attempts": 2, "read_timeout": 5.0, **changes}
    return FetchSettings(tmp_path / "partial", **fields)  # type: ignore[arg-type]


def obtain(tmp_path: Path, url: str, access: Access | None = None, size: int = 6) -> bytes:
    downloads = Downloader(Http(settings(tmp_path), access))
    with downloads.obtain(Wanted("x", Sha256(DIGEST), size), [Place(url)], Recorder()) as path:
        return path.read_bytes()


def refused(tmp_path: Path, url: str, access: Access | None = None) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        obtain(tmp_path, url, access)
    return caught.value


def fetch(tmp_path: Path, origin: dict[str, Value], *, filename: str = "x",
          pip: PipConfig | None = None, apt: AptConfig | None = None) -> object:  # fmt: skip
    options = settings(tmp_path)
    fetchers = Fetchers(
        file_fetchers(
            MemoryStore(tmp_path / "m"),
            options,
            base=tmp_path,
            places=lambda: Places(options, pip=pip or PipConfig(()), apt=apt or AptConfig()),
        )
    )
    fixed = FixedOutput("file", filename=filename, sha256=Sha256(DIGEST))
    return fetchers.fetch(fixed, origin, Recorder())


# -- being led elsewhere ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "FILE:///etc/passwd", "ftp://h/x", "data:,x", "gopher://h/"]
)
def test_a_redirect_leaves_http_for_nothing(web: WebServer, tmp_path: Path, target: str) -> None:
    web.put("/x", b"", always=Fault("redirect", location=target))
    error = refused(tmp_path, f"{web.url}/x")
    assert "redirected" in error.message


def test_a_redirect_never_drops_encryption() -> None:
    response = requests.Response()
    response.status_code = 302
    response.url = "https://host.example/x"
    response.headers["location"] = "http://host.example/x"
    with pytest.raises(TransferError, match="from https to http"):
        Session(Access()).get_redirect_target(response)
    response.headers["location"] = "/y"
    assert Session(Access()).get_redirect_target(response) == "/y"


def test_a_trusted_host_makes_no_other_host_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def send(
        self: object, request: requests.PreparedRequest, **kwargs: object
    ) -> requests.Response:
        asked[str(request.url)] = kwargs["verify"]
        return requests.Response()

    monkeypatch.setattr(requests.Session, "send", send)
    session = Session(Access(trusted_hosts=frozenset({"inside", "other:8443"})))
    for url in ("https://inside/", "https://outside/", "https://other:8443/", "https://other/"):
        # False is what a redirect from a trusted host carries along.
        session.send(requests.Request("GET", url).prepare(), verify=False)
    assert asked == {
        "https://inside/": False,
        "https://outside/": True,
        "https://other:8443/": False,
        "https://other/": True,
    }


def test_credentials_do_not_follow_a_redirect(web: WebServer, tmp_path: Path) -> None:
    with web_server() as elsewhere:
        elsewhere.put("/x", BODY)
        target = elsewhere.url.replace("127.0.0.1", "localhost") + "/x"
        web.put("/x", b"", always=Fault("redirect", location=target))
        assert obtain(tmp_path, f"http://user:{SECRET}@{web.host}/x") == BODY
        assert "Authorization" in web.seen[0].headers
        assert "Authorization" not in elsewhere.seen[0].headers


def test_an_index_page_cannot_point_at_this_machines_files(web: WebServer, tmp_path: Path) -> None:
    local = tmp_path / "thing-1.0-py3-none-any.whl"
    local.write_bytes(BODY)
    page = f'<a href="{local.as_uri()}">{local.name}</a>'.encode()
    web.put("/simple/thing/", page, content_type="text/html")
    options = settings(tmp_path)
    config = PipConfig((f"{web.url}/simple",))
    discovery = Discovery(options, places=lambda: Places(options, pip=config))
    with pytest.raises(ReprobuildError) as caught:
        discovery.wheel("thing", "1.0")
    assert caught.value.code == "E-PACKAGE-MISSING"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[" * 200_000, "application/vnd.pypi.simple.v1+json"),
        (b"{}", "application/vnd.pypi.simple.v1+json"),
        (b'{"meta": {"api-version": "9.0"}, "name": "thing", "files": []}',
         "application/vnd.pypi.simple.v1+json"),
        (b'<meta name="pypi:repository-version" content="9.0">', "text/html"),
        (b"\xff\xfe\x00", "application/vnd.pypi.simple.v1+json"),
        (b"PK", "application/zip"),
    ],
)  # fmt: skip
def test_an_index_page_that_is_none(web: WebServer, tmp_path: Path, body: bytes, kind: str) -> None:
    web.put("/simple/thing/", body, content_type=kind)
    options = settings(tmp_path)
    config = PipConfig((f"{web.url}/simple",))
    discovery = Discovery(options, places=lambda: Places(options, pip=config))
    with pytest.raises(ReprobuildError) as caught:
        discovery.wheel("thing", "1.0")
    assert caught.value.code == "E-FETCH"


def test_an_index_page_that_never_ends(web: WebServer, tmp_path: Path) -> None:
    web.put("/page", b"", always=Fault("endless"))
    with pytest.raises(TransferError, match="more than 1000000 bytes"):
        Http(settings(tmp_path)).read(f"{web.url}/page", limit=1_000_000)


# -- names and places ---------------------------------------------------------------------------


@pytest.mark.parametrize("filename", ["../x", "a/b", ".", "..", "", "x\0y", "/etc/passwd"])
def test_a_file_name_is_one_name(web: WebServer, tmp_path: Path, filename: str) -> None:
    web.put("/x", BODY)
    origin: dict[str, Value] = {"kind": "url", "url": f"{web.url}/x", "size": 6}
    with pytest.raises(ReprobuildError):
        fetch(tmp_path, origin, filename=filename)
    assert web.seen == []


@pytest.mark.parametrize(
    "url",
    ["ftp://h/x", "data:,x", "ext::sh -c id", "javascript:x", "file://host/etc/passwd", "x", "",
     "http://", "http://[::1", "https://h:port/x", "file:relative", "http://h\r\nX: y/"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    assert refused(tmp_path, url).code == "E-FETCH"


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1/x",
        "http://h/",
        "http://h",
        "http://h/a%2Fb/..",
        "http://h/%00",
        "http://h/a%0Ab",
    ],
)
def test_a_url_without_a_file_name_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ReprobuildError, match="file name"):
        Discovery(settings(tmp_path)).url(url)


def test_devices_and_pipes_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
        assert "no regular file" in refused(tmp_path, f"file://{path}").message


def test_a_link_in_the_place_of_a_partial_file_is_not_followed(
    web: WebServer, tmp_path: Path
) -> None:
    web.put("/x", BODY)
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious content")
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / DIGEST).symlink_to(precious)
    assert refused(tmp_path, f"{web.url}/x").exit_status == 4
    assert precious.read_bytes() == b"precious content"
    (tmp_path / "partial" / DIGEST).unlink()
    (tmp_path / "partial" / f"{DIGEST}.lock").symlink_to(precious)
    assert refused(tmp_path, f"{web.url}/x").exit_status == 4
    assert precious.read_bytes() == b"precious content"


@pytest.mark.parametrize("location", ["../../etc/passwd", "/etc/passwd", "pool/%2e%2e/../x"])
def test_a_package_location_stays_in_its_archive(tmp_path: Path, location: str) -> None:
    origin: dict[str, Value] = {
        "kind": "deb", "suite": "bookworm", "architecture": "amd64", "name": "x",
        "version": "1", "location": location, "size": 6,
    }  # fmt: skip
    apt = AptConfig((Archive("file:///srv/debian", "bookworm"),))
    with pytest.raises(ReprobuildError) as caught:
        fetch(tmp_path, origin, apt=apt)
    assert caught.value.code == "E-LOCK"


# -- exhausting ---------------------------------------------------------------------------------


@pytest.mark.skipif(bool(missing_tools()), reason=missing_tools())
def test_a_packages_file_that_unpacks_without_end(tmp_path: Path) -> None:
    with signer(tmp_path / "key") as key:
        archive = DebArchive(tmp_path / "debian", key)
        archive.add("tool", "1", b"x")
        archive.publish()
        bomb = lzma.compress(bytes(50_000_000))
        packages = archive.root / "dists/bookworm/main/binary-amd64/Packages.xz"
        packages.write_bytes(bomb)
        archive.release = archive.release.replace(
            next(li for li in archive.release.splitlines() if li.endswith("Packages.xz")),
            f" {hashlib.sha256(bomb).hexdigest()} {len(bomb)} main/binary-amd64/Packages.xz",
        )
        archive.sign(key)
        apt = AptConfig((Archive(archive.root.as_uri(), "bookworm", (str(key.keyring),)),))
        options = settings(tmp_path)
        discovery = Discovery(options, places=lambda: Places(options, apt=apt))
        with pytest.raises(ReprobuildError, match="longer than its archive declares"):
            discovery.debs("bookworm", "amd64", ["main"], ["tool"])


def test_a_pause_is_never_as_long_as_a_server_wishes(web: WebServer, tmp_path: Path) -> None:
    headers = (("Retry-After", "86400"),)
    web.put("/x", BODY, faults=[Fault("status", 429, headers=headers)])
    options = settings(tmp_path, longest_pause=0.1)
    with Downloader(Http(options)).obtain(
        Wanted("x", Sha256(DIGEST), 6), [Place(f"{web.url}/x")], Recorder()
    ) as path:
        assert path.read_bytes() == BODY


@pytest.mark.parametrize(
    "pause", ["-5", "nan", "inf", "1e400", "Wed, 21 Oct 2099 07:28:00 GMT", "x"]
)
def test_a_pause_that_is_none(web: WebServer, tmp_path: Path, pause: str) -> None:
    web.put("/x", BODY, faults=[Fault("status", 503, headers=(("Retry-After", pause),))])
    assert obtain(tmp_path, f"{web.url}/x") == BODY


@pytest.mark.parametrize(
    "headers",
    [{"Content-Range": "bytes 0-5/6"}, {"ETag": "W/\"x\""}, {"Content-Encoding": "gzip"},
     {"Content-Encoding": "br"}],
)  # fmt: skip
def test_headers_that_lie_change_nothing(
    web: WebServer, tmp_path: Path, headers: dict[str, str]
) -> None:
    web.put("/x", BODY, headers=headers)
    assert obtain(tmp_path, f"{web.url}/x") == BODY


# -- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://user:{SECRET}@h/p", "https://h/p"),
        (f"https://{SECRET}@h/p", "https://h/p"),
        (f"https://h/p?token={SECRET}&x=1", "https://h/p?token=…&x=…"),
        (f"https://h/p#{SECRET}", "https://h/p"),
        (f"https://u:{SECRET}@x@h:80/p", "https://h:80/p"),
        (f"http://[::1{SECRET}", "(a URL that cannot be read)"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_credentials_are_decoded() -> None:
    assert split_credentials("https://a%40b:c%3Ad@h:1/p?q#f") == (
        "https://h:1/p?q#f",
        ("a@b", "c:d"),
    )


FAULTS = [
    Fault("status", 401),
    Fault("status", 500),
    Fault("reset"),
    Fault("redirect", location="ftp://x/"),
    Fault("redirect", location="http://127.0.0.1:1/"),
    Fault("redirect", location="http://[::"),
    Fault("whole"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.kind}-{f.number}{f.location}")
def test_no_failure_shows_a_secret(
    web: WebServer, tmp_path: Path, fault: Fault, capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("DEBUG")
    path = f"/x?sig={SECRET}"
    web.put(path, b"other!", always=fault)
    proxies = {"https": f"http://user:{SECRET}@127.0.0.1:1"}
    error = refused(tmp_path, f"http://user:{SECRET}@{web.host}{path}", Access(proxies=proxies))
    proxied = refused(tmp_path, "https://host.invalid/x", Access(proxies=proxies))
    assert "proxy" in proxied.message
    shown = json.dumps([error.as_document(), proxied.as_document()]) + repr(error) + str(proxied)
    assert SECRET not in shown
    assert SECRET not in "".join(capfd.readouterr())
    assert error.__cause__ is None
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("reprobuild")]
    assert SECRET not in "".join(ours)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("oci://user:geheim@h:1/a/b", "oci://h:1/a/b"),
        ("oci://user:ge/heim@h:1/a/b", "oci://h:1/a/b"),
        ("at https://u:ge@heim@h/x, and", "at https://h/x, and"),
        ("http://[::1]:80/x@y", "http://[::1]:80/x@y"),
        ("https://h:80/x@sha256:ab", "https://h:80/x@sha256:ab"),
    ],
)
def test_what_is_shown_of_an_address_in_a_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize("digest", ["", ":tag", "@sha256:" + "ab" * 32])
@pytest.mark.parametrize("scheme", ["", "https://", "docker://"])
def test_an_image_reference_shows_no_password(scheme: str, digest: str) -> None:
    for secret in ("geheim", "geh/eim", "geh@eim"):
        with pytest.raises(ReprobuildError) as caught:
            ImageReference.parse(f"{scheme}user:{secret}@h.example/a/b{digest}")
        assert "eim" not in str(caught.value.as_document())
        assert "docker login" in caught.value.message


def test_a_cache_s_address_shows_no_password() -> None:
    with pytest.raises(ReprobuildError) as caught:
        repository_of("oci://user:geheim@127.0.0.1:1/a/b")
    assert "geheim" not in str(caught.value.as_document())
    assert caught.value.__cause__ is None


def test_no_error_that_is_printed_shows_a_password(capfd: pytest.CaptureFixture[str]) -> None:
    for wants_json in (False, True):
        error = ReprobuildError("E-FETCH", "no: https://u:geheim@h/x", tried=["oci://u:geheim@h"])
        assert cli._report(error, wants_json) == error.exit_status
    out, err = capfd.readouterr()
    assert "https://h/x" in out
    assert "oci://h" in err
    assert "geheim" not in out + err


@pytest.mark.parametrize("length", ["-5", "1e3", "0x5", "5, 6", "\u0665", "9" * 30])
@pytest.mark.parametrize("status", [200, 302, 401])
def test_a_length_that_is_none_is_refused_at_once(tmp_path: Path, length: str, status: int) -> None:
    """The connection stays open, so whoever reads on waits."""
    answered: list[socket.socket] = []

    def serve() -> None:
        while True:
            client, _ = server.accept()
            client.recv(65536)
            answered.append(client)
            head = f"HTTP/1.1 {status} x\r\nLocation: /\r\nContent-Length: {length}\r\n\r\nhello"
            client.sendall(head.encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(TransferError) as caught:
            Http(FetchSettings(tmp_path, attempts=3, read_timeout=3.0)).read(url)
    assert "length" in caught.value.reason
    assert len(answered) == 1


def test_a_body_fast_enough_does_not_hold_one_question_for_ever(
    web: WebServer, tmp_path: Path
) -> None:
    web.put("/x", b"", always=Fault("endless"))
    settings = FetchSettings(tmp_path, attempts=3, answer_timeout=0.3)
    with pytest.raises(TransferError) as caught:
        Http(settings).read(f"{web.url}/x", limit=2**50)
    assert "for one answer" in caught.value.reason
    assert len(web.seen) == 1


def test_silence_counts_too(web: WebServer, tmp_path: Path) -> None:
    web.put("/x", b"abc", always=Fault("stall", 1))
    settings = FetchSettings(tmp_path, attempts=2, backoff=0.0, answer_timeout=0.3)
    with pytest.raises(TransferError):
        Http(settings).read(f"{web.url}/x")
    assert len(web.seen) == 1
