"""Image references, registries and their logins, layouts and archives."""

from __future__ import annotations

import hashlib
import json
import stat
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.docker.repository import Repository
from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.fetchers import file_fetchers
from reprobuild.adapters.fetch.http import Access, Http, TransferError
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.fetch.peek import peek
from reprobuild.adapters.fetch.registry import RegistrySource
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Sha256
from reprobuild.core.mirrors import Mirrors
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.ociparts import MANIFEST, Image, descriptor, index_of, write_archive, write_layout
from support.webserver import Fault, WebServer, web_server

IMAGE = Image()
DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


@pytest.fixture(autouse=True)
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker configuration of the test's own; returns its directory."""
    home = tmp_path / "docker"
    home.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(home))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return home


def settings(tmp_path: Path, **changes: object) -> FetchSettings:
    fields: dict[str, object] = {"backoff": 0.0, "attempts": 2, **changes}
    return FetchSettings(tmp_path / "partial", **fields)  # type: ignore[arg-type]


def discover(tmp_path: Path, reference: str, **changes: object) -> str:
    return str(Discovery(settings(tmp_path, **changes)).oci(reference, tmp_path))


def fetch(tmp_path: Path, reference: str, digest: str, **changes: object) -> MemoryStore:
    store = MemoryStore(tmp_path / "materialised")
    fetcher = file_fetchers(store, settings(tmp_path, **changes), base=tmp_path)["oci"]
    fixed = FixedOutput("oci-image", sha256=Sha256.parse(digest))
    tree = fetcher.fetch(fixed, {"kind": "oci", "reference": reference}, Recorder())
    assert store.contains(tree)
    return store


def refused(tmp_path: Path, reference: str, **changes: object) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        discover(tmp_path, reference, **changes)
    return caught.value


def serve(web: WebServer, image: Image, name: str = "some/image", **fields: str) -> None:
    for digest, data in image.blobs.items():
        web.put(f"/v2/{name}/blobs/{digest}", data, **fields)
    web.put(f"/v2/{name}/manifests/{image.digest}", image.manifest, **fields)


# -- references ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("debian", ("docker.io", "library/debian", "latest", None)),
        ("debian:12", ("docker.io", "library/debian", "12", None)),
        ("vllm/vllm-openai:v1", ("docker.io", "vllm/vllm-openai", "v1", None)),
        ("docker.io/debian", ("docker.io", "library/debian", "latest", None)),
        ("docker://index.docker.io/debian", ("docker.io", "library/debian", "latest", None)),
        ("ghcr.io/a/b/c:t", ("ghcr.io", "a/b/c", "t", None)),
        ("localhost/x", ("localhost", "x", "latest", None)),
        ("host:5000/x", ("host:5000", "x", "latest", None)),
        ("[::1]:5000/x:t", ("[::1]:5000", "x", "t", None)),
        (f"h.io/x@{DIGEST}", ("h.io", "x", "latest", DIGEST)),
        (f"h.io/x:t@{DIGEST}", ("h.io", "x", "t", DIGEST)),
    ],
)
def test_registry_references(text: str, parts: tuple[str, str, str, str | None]) -> None:
    found = ImageReference.parse(text)
    digest = str(found.digest) if found.digest else None
    assert (found.host, found.repository, found.tag, digest) == parts
    assert found.transport == "registry"


@pytest.mark.parametrize(
    ("text", "path", "tag"),
    [
        ("oci:dir", "dir", ""),
        ("oci:/a/dir:1.0", "/a/dir", "1.0"),
        ("oci:a:b/dir", "a:b/dir", ""),
        ("oci-archive:x.tar:latest", "x.tar", "latest"),
    ],
)
def test_local_references(text: str, path: str, tag: str) -> None:
    found = ImageReference.parse(text, Path("/base"))
    assert (found.path, found.tag) == (Path("/base") / path, tag)


@pytest.mark.parametrize(
    "text",
    ["", "UPPER", "a b", "h.io/", "h.io/a//b", "h.io/../x", "x:", "x:t@sha256:12", "oci:", "-x/y",
     "h.io/x?y=z", "user@h.io/x", "h.io/x:t/../../y", "http://h.io/x", "x:" + "t" * 200],
)  # fmt: skip
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        ImageReference.parse(text)
    assert caught.value.code == "E-OCI-REFERENCE"


# -- discovery ----------------------------------------------------------------------------------


def test_a_tag_is_pinned_to_the_amd64_manifest(web: WebServer, tmp_path: Path) -> None:
    serve(web, IMAGE)
    other = Image(architecture="arm64")
    web.put("/v2/some/image/manifests/latest", index_of(other, IMAGE))
    assert discover(tmp_path, f"{web.host}/some/image") == IMAGE.digest
    accepted = web.seen[0].headers["Accept"]
    assert "vnd.oci.image.index" in accepted
    assert "vnd.docker.distribution.manifest.v2" in accepted


def test_a_plain_manifest_is_pinned_as_it_is(web: WebServer, tmp_path: Path) -> None:
    serve(web, IMAGE)
    web.put("/v2/some/image/manifests/1", IMAGE.manifest)
    assert discover(tmp_path, f"{web.host}/some/image:1") == IMAGE.digest


def test_another_platform_is_refused(web: WebServer, tmp_path: Path) -> None:
    arm = Image(architecture="arm64")
    serve(web, arm)
    web.put("/v2/some/image/manifests/1", arm.manifest)
    web.put("/v2/some/image/manifests/2", index_of(arm))
    for tag in ("1", "2"):
        error = refused(tmp_path, f"{web.host}/some/image:{tag}")
        assert error.code == "E-OCI-REFERENCE"
        assert "linux/arm64" in error.message


def test_a_missing_tag(web: WebServer, tmp_path: Path) -> None:
    error = refused(tmp_path, f"{web.host}/some/image:none")
    assert error.code == "E-FETCH"
    assert "404" in error.message
    assert refused(tmp_path, f"{web.host}/some/image", offline=True).code == "E-OFFLINE"


def test_a_registry_that_gives_another_manifest_is_refused(web: WebServer, tmp_path: Path) -> None:
    serve(web, IMAGE)
    web.put(f"/v2/some/image/manifests/{DIGEST}", IMAGE.manifest)
    error = refused(tmp_path, f"{web.host}/some/image@{DIGEST}")
    assert error.code == "E-FETCH-MISMATCH"
    assert DIGEST in error.message
    assert IMAGE.digest in error.message


def bad(**changes: object) -> bytes:
    return json.dumps({**json.loads(IMAGE.manifest), **changes}).encode()


@pytest.mark.parametrize(
    "manifest",
    [
        b"not json",
        b"[]",
        b'{"schemaVersion": 1, "fsLayers": []}',
        b"[" * 100_000,
        bad(layers=[{"digest": "sha512:" + "0" * 128, "size": 1}]),
        bad(layers=[{"digest": "sha256:../../etc/passwd", "size": 1}]),
        bad(layers=[{"digest": DIGEST, "size": -1}]),
        bad(layers=[{"digest": DIGEST, "size": True}]),
        bad(config=descriptor("x", b"x") | {"size": 2**40}),
        bad(config=None),
        b'{"manifests": []}',
        b'{"manifests": {}}',
        b'{"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]}',
    ],
)
def test_a_manifest_that_is_off_is_refused(web: WebServer, tmp_path: Path, manifest: bytes) -> None:
    serve(web, IMAGE)
    web.put("/v2/some/image/manifests/1", manifest)
    assert refused(tmp_path, f"{web.host}/some/image:1").code == "E-OCI-REFERENCE"


def test_indexes_nested_without_end_are_refused(web: WebServer, tmp_path: Path) -> None:
    inner = index_of(IMAGE)
    for _ in range(5):
        digest = hashlib.sha256(inner).hexdigest()
        web.put(f"/v2/some/image/manifests/sha256:{digest}", inner)
        platform = {"os": "linux", "architecture": "amd64"}
        inner = json.dumps({"manifests": [descriptor(MANIFEST, inner, platform=platform)]}).encode()
    web.put("/v2/some/image/manifests/1", inner)
    assert "nested" in refused(tmp_path, f"{web.host}/some/image:1").message


def test_layouts_and_archives(tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", IMAGE, tag="1")
    write_archive(tmp_path / "image.tar", layout)
    for reference in (
        "oci:layout",
        "oci:layout:1",
        f"oci:layout@{IMAGE.digest}",
        "oci-archive:image.tar:1",
    ):
        assert discover(tmp_path, reference, offline=True) == IMAGE.digest
    for reference in ("oci:layout:2", "oci-archive:image.tar:2", "oci:none", "oci-archive:none"):
        assert refused(tmp_path, reference).code == "E-FETCH"


def test_an_archive_that_is_off(tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", IMAGE)
    blob = layout / "blobs" / "sha256" / hashlib.sha256(IMAGE.layers[0]).hexdigest()
    blob.write_bytes(b"LAYER ONE")
    path = write_archive(tmp_path / "image.tar", layout)
    with pytest.raises(ReprobuildError) as caught:
        fetch(tmp_path, "oci-archive:image.tar", IMAGE.digest)
    assert caught.value.code == "E-FETCH-MISMATCH"
    path.write_bytes(path.read_bytes()[:700])
    assert refused(tmp_path, "oci-archive:image.tar").code == "E-FETCH"
    path.write_bytes(b"no tar at all" * 100)
    assert refused(tmp_path, "oci-archive:image.tar").code == "E-FETCH"
    assert list((tmp_path / "partial").iterdir()) == []


# -- logins -------------------------------------------------------------------------------------

BASIC = "Basic " + b64encode(b"user:geheim").decode()


def login(home: Path, host: str, **entry: str) -> None:
    entry = entry or {"auth": b64encode(b"user:geheim").decode()}
    (home / "config.json").write_text(json.dumps({"auths": {host: entry}}))


def token_server(web: WebServer, *, scope: str = "some/image") -> str:
    """Makes the registry ask for a token; returns the token endpoint's path."""
    realm = f"{web.url}/token"
    challenge = f'Bearer realm="{realm}",service="reg",scope="repository:{scope}:pull"'
    serve(web, IMAGE, authorization="Bearer t0ken", challenge=challenge)
    web.put("/v2/some/image/manifests/1", IMAGE.manifest, authorization="Bearer t0ken",
            challenge=challenge)  # fmt: skip
    return f"/token?scope=repository%3A{scope.replace('/', '%2F')}%3Apull&service=reg"


def test_an_anonymous_token_is_asked_for(web: WebServer, tmp_path: Path) -> None:
    path = token_server(web)
    web.put(path, b'{"token": "t0ken"}')
    assert discover(tmp_path, f"{web.host}/some/image:1") == IMAGE.digest
    store = fetch(tmp_path, f"{web.host}/some/image:1", IMAGE.digest)
    assert IMAGE.layers[1] in store.blobs.values()
    assert "Authorization" not in web.requests(path)[0].headers


def test_a_token_is_bought_with_the_login(web: WebServer, tmp_path: Path, no_logins: Path) -> None:
    path = token_server(web)
    web.put(path, b'{"access_token": "t0ken"}', authorization=BASIC)
    login(no_logins, web.host)
    assert discover(tmp_path, f"{web.host}/some/image:1") == IMAGE.digest


def test_an_identity_token_is_refreshed(web: WebServer, tmp_path: Path, no_logins: Path) -> None:
    token_server(web)
    web.put("/token", b'{"access_token": "t0ken"}')
    login(no_logins, web.host, identitytoken="idt")
    assert discover(tmp_path, f"{web.host}/some/image:1") == IMAGE.digest
    (asked,) = web.requests("/token")
    assert asked.method == "POST"
    assert b"refresh_token=idt" in asked.body


@pytest.mark.parametrize("put", [False, True])
@pytest.mark.parametrize(
    "realm",
    [
        "http://tokens.invalid/token",
        "HTTP://tokens.invalid/token",
        "http://127.0.0.1.tokens.invalid/token",
        "http://tokens.invalid\\@127.0.0.1/token",
        "http://127.0.0.1@tokens.invalid/token",
        "file:///etc/passwd",
        "http://[::1/token",
    ],
)
def test_no_login_goes_in_clear_text_to_another_machine(
    web: WebServer,
    tmp_path: Path,
    no_logins: Path,
    monkeypatch: pytest.MonkeyPatch,
    realm: str,
    put: bool,
) -> None:
    challenge = f'Bearer realm="{realm}",service="reg"'
    path = "/v2/some/image/manifests/1"
    web.put(path, IMAGE.manifest, authorization="Bearer t0ken", challenge=challenge)
    login(no_logins, web.host)
    monkeypatch.setenv("http_proxy", web.url)  # would see what goes out
    monkeypatch.setenv("no_proxy", web.host.partition(":")[0])
    with pytest.raises(TransferError) as caught:
        if put:
            target = ImageReference.parse(f"{web.host}/some/image:1")
            Repository(target, Access(), 0.0).ask("GET", f"{web.url}{path}", (200,))
        else:
            downloads = Downloader(Http(settings(tmp_path)))
            RegistrySource(downloads, web.host, "some/image").manifest("1")
    assert "is not https" in caught.value.reason
    assert [seen.path for seen in web.seen] == [path]


def test_an_identity_token_is_not_led_on(web: WebServer, tmp_path: Path, no_logins: Path) -> None:
    token_server(web)
    web.put("/token", b"", always=Fault("redirect", 307, f"{web.url}/elsewhere"))
    login(no_logins, web.host, identitytoken="idt")
    assert refused(tmp_path, f"{web.host}/some/image:1").code == "E-FETCH"
    assert web.requests("/elsewhere") == []


def test_an_error_names_the_scheme_that_was_spoken(web: WebServer, tmp_path: Path) -> None:
    error = refused(tmp_path, f"{web.host}/some/image:absent")
    assert f"http://{web.host}/some/image" in error.message
    with pytest.raises(ReprobuildError) as caught:
        peek(Downloader(Http(settings(tmp_path))), f"{web.host}/some/image:absent", Recorder())
    assert f"http://{web.host}/some/image" in caught.value.message
    assert ImageReference.parse("127.0.0.1.example/a/b").url == "https://127.0.0.1.example/a/b"


def test_a_basic_login_is_sent(web: WebServer, tmp_path: Path, no_logins: Path) -> None:
    serve(web, IMAGE, authorization=BASIC)
    assert refused(tmp_path, f"{web.host}/some/image@{IMAGE.digest}").code == "E-FETCH"
    login(no_logins, web.host)
    assert discover(tmp_path, f"{web.host}/some/image@{IMAGE.digest}") == IMAGE.digest


def test_a_login_of_another_host_is_not_sent(
    web: WebServer, tmp_path: Path, no_logins: Path
) -> None:
    serve(web, IMAGE, authorization=BASIC)
    login(no_logins, "registry.example")
    assert "docker login" in refused(tmp_path, f"{web.host}/some/image@{IMAGE.digest}").message
    assert all("Authorization" not in seen.headers for seen in web.seen)


def test_a_credential_helper_is_asked(
    web: WebServer, tmp_path: Path, no_logins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(web, IMAGE, authorization=BASIC)
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        "#!/bin/sh\nread server\n"
        '[ "$server" = "$EXPECTED" ] || { echo "not the expected server"; exit 1; }\n'
        'echo "{\\"Username\\": \\"user\\", \\"Secret\\": \\"geheim\\"}"\n'
    )
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("EXPECTED", web.host)
    (no_logins / "config.json").write_text(json.dumps({"credHelpers": {web.host: "test"}}))
    assert discover(tmp_path, f"{web.host}/some/image@{IMAGE.digest}") == IMAGE.digest


@pytest.mark.parametrize(
    "config",
    ['{"auths": {"HOST": {"auth": "!!geheim!!"}}}', '{"credHelpers": {"HOST": "no-such-helper"}}'],
)
def test_a_broken_login_is_said_without_its_secret(
    web: WebServer, tmp_path: Path, no_logins: Path, config: str
) -> None:
    serve(web, IMAGE, authorization=BASIC)
    (no_logins / "config.json").write_text(config.replace("HOST", web.host))
    error = refused(tmp_path, f"{web.host}/some/image@{IMAGE.digest}")
    assert error.code == "E-FETCH"
    assert "geheim" not in error.message + str(error.facts)


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b'{"token": 3}', b'{"token": "a\\r\\nX: y"}', b"{}"]
)
def test_a_token_server_that_is_off(web: WebServer, tmp_path: Path, answer: bytes) -> None:
    web.put(token_server(web), answer)
    error = refused(tmp_path, f"{web.host}/some/image:1")
    assert error.code == "E-FETCH"
    assert "gave no token" in error.message


def test_a_mirror_is_not_shown_the_token(web: WebServer, tmp_path: Path) -> None:
    web.put(token_server(web), b'{"token": "t0ken"}')
    with web_server() as mirror:
        rules = ((f"{web.url}/", (f"{mirror.url}/",)),)
        reference = f"{web.host}/some/image:1"
        fetch(tmp_path, reference, IMAGE.digest, mirrors=Mirrors(rules=rules))
        assert len(mirror.seen) >= len(IMAGE.blobs)
        assert all("Authorization" not in seen.headers for seen in mirror.seen)


def test_a_login_is_found_when_a_mirror_had_the_manifest_only(
    web: WebServer, tmp_path: Path
) -> None:
    path = token_server(web)
    web.put(path, b'{"token": "t0ken"}')
    challenge = f'Bearer realm="{web.url}/token",service="reg"'
    web.put("/v2/", b"{}", authorization="Bearer t0ken", challenge=challenge)
    with web_server() as mirror:
        mirror.put(f"/v2/some/image/manifests/{IMAGE.digest}", IMAGE.manifest)
        rules = ((f"{web.url}/", (f"{mirror.url}/",)),)
        reference = f"{web.host}/some/image:1"
        fetch(tmp_path, reference, IMAGE.digest, mirrors=Mirrors(rules=rules))
        assert web.requests(f"/v2/some/image/manifests/{IMAGE.digest}") == []


def test_a_token_server_that_goes_away_is_said(web: WebServer, tmp_path: Path) -> None:
    token_server(web)
    challenge = f'Bearer realm="{web.url}/token",service="reg"'
    web.put("/v2/", b"{}", authorization="Bearer t0ken", challenge=challenge)
    with web_server() as mirror:
        mirror.put(f"/v2/some/image/manifests/{IMAGE.digest}", IMAGE.manifest)
        mirrors = Mirrors(rules=((f"{web.url}/", (f"{mirror.url}/",)),))
        with pytest.raises(ReprobuildError) as caught:
            fetch(tmp_path, f"{web.host}/some/image:1", IMAGE.digest, mirrors=mirrors)
    assert caught.value.code == "E-FETCH"
