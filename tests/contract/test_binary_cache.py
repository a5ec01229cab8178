"""What every binary cache must do: in files behind a web server, and in a registry with logins."""

from __future__ import annotations

import json
import os
import socket
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests

from reprobuild.adapters.bundle.service import Bundles
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.store.store import LocalStore
from reprobuild.adapters.substituter import absent, patience
from reprobuild.adapters.substituter.registry import parse_entry_manifest, repository_of, tag_of
from reprobuild.adapters.substituter.static import CacheDirectory
from reprobuild.core.bundle.cacheentry import entry_path
from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.engine.substitute import Substitution, cache_shipment, to_push
from reprobuild.errors import ReprobuildError
from reprobuild.ports import NullReporter
from reprobuild.settings import Settings
from support.bundles import Release, TestSigner, TestTrust, make_release
from support.registry import LOGIN, running
from support.webserver import WebServer

SIGNER = TestSigner()
TRUST = TestTrust(SIGNER.key)


class Place(Protocol):
    """A cache that can be written at one address and read at another."""

    write: str

    @property
    def read(self) -> str:
        """The address to read at."""
        ...

    def asked(self, drv: Digest) -> int:
        """How many requests there were for a recipe."""
        ...

    def damage(self, drv: Digest) -> None:
        """Gives the recipe another result, and leaves the signature as it is."""
        ...


class Files:
    """A directory that a web server serves as it is now."""

    def __init__(self, path: Path, web: WebServer) -> None:
        self.write, self.web = str(path), web
        self._path = path

    @property
    def read(self) -> str:
        for path in self._path.rglob("*"):
            if path.is_file():
                self.web.put(f"/{path.relative_to(self._path).as_posix()}", path.read_bytes())
        return self.web.url

    def asked(self, drv: Digest) -> int:
        return len(self.web.requests(f"/{entry_path(drv)}"))

    def damage(self, drv: Digest) -> None:
        path = self._path / entry_path(drv)
        path.write_bytes(lied(path.read_bytes()))


class Registry:
    """A repository of a registry that wants a login; a proxy in front of it counts."""

    def __init__(self, host: str, counter: Counter) -> None:
        self.write = f"oci://{counter.host}/team/cache"
        self._host, self._counter = host, counter

    @property
    def read(self) -> str:
        return self.write

    def asked(self, drv: Digest) -> int:
        return self._counter.lines.count(f"/v2/team/cache/manifests/{tag_of(drv)}")

    def damage(self, drv: Digest) -> None:
        url = f"http://{self._host}/v2/team/cache/manifests/{tag_of(drv)}"
        login: Any = ("user", "geheim")
        kind = "application/vnd.oci.image.manifest.v1+json"
        document = requests.get(url, auth=login, headers={"Accept": kind}, timeout=9).json()
        text = lied(b64decode(document["config"]["data"]))
        document["config"]["data"] = b64encode(text).decode()
        headers = {"Content-Type": kind}
        body = json.dumps(document)
        assert requests.put(url, auth=login, headers=headers, data=body, timeout=9).ok


def lied(entry: bytes) -> bytes:
    """An entry with another tree."""
    document = json.loads(entry)
    outputs = document["record"]["outputs"]
    outputs["out"] = outputs["out"][::-1]
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


class Counter:
    """Passes connections on, and notes which paths were read."""

    def __init__(self, target: str) -> None:
        self.lines: list[str] = []
        self._target = (target.partition(":")[0], int(target.partition(":")[2]))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if asking and data.startswith(b"GET "):
                    self.lines.append(data.split(b" ", 2)[1].decode())
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()


@pytest.fixture(params=["files", "registry"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    home = tmp_path / "docker"
    home.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(home))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none.json"))
    if request.param == "files":
        with closing(WebServer()) as web:
            yield Files(tmp_path / "cache", web)
        return
    (tmp_path / "registry").mkdir()
    with (
        running(tmp_path / "registry", login=True) as host,
        closing(Counter(host)) as counter,
    ):
        auths = {name: {"auth": LOGIN} for name in (host, counter.host)}
        (home / "config.json").write_text(json.dumps({"auths": auths}))
        yield Registry(host, counter)


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    made = make_release(tmp_path / "maker")
    yield made
    made.store.close()


@pytest.fixture
def settings(tmp_path: Path) -> FetchSettings:
    return FetchSettings(tmp_path / "partial", backoff=0.01)


def environment(tmp_path: Path) -> Settings:
    return Settings(environment={"HOME": str(tmp_path / "home")})


def push(
    release: Release,
    address: str,
    settings: FetchSettings,
    tmp_path: Path,
    signer: TestSigner = SIGNER,
) -> int:
    """Everything that was made; how many results were new."""
    bundles = Bundles(lambda: release.store, environment(tmp_path))
    records, absent_ = to_push(release.store, release.graph, [release.target.drv])
    assert absent_ == 0
    new = 0
    with closing(bundles.cache_writer(address, settings)) as cache:
        for record in records:
            if not cache.has(record, signer.key):
                bundles.put_in_cache(cache, record, *cache_shipment(release.store, record), signer)
                new += 1
    return new


@dataclass
class Taker:
    """A store with nothing in it."""

    store: LocalStore
    settings: FetchSettings
    tmp_path: Path

    def ask(
        self, graph: Graph, drv: Digest, *addresses: str, trust: TestTrust = TRUST
    ) -> Substitution:
        """Takes what it can get."""
        bundles = Bundles(lambda: self.store, environment(self.tmp_path))
        caches = [bundles.cache(a, self.settings, NullReporter()) for a in addresses]
        asked = Substitution(self.store, caches, trust, NullReporter())
        with self.store.lease():
            asked.prefetch(graph, [drv], Isolation.FULL)
        return asked


@pytest.fixture
def taker(tmp_path: Path, settings: FetchSettings) -> Iterator[Taker]:
    with LocalStore.open(tmp_path / "taker", create=True) as store:
        yield Taker(store, settings, tmp_path)


def test_what_was_pushed_is_had(
    place: Place, release: Release, taker: Taker, settings: FetchSettings, tmp_path: Path
) -> None:
    drv = release.target.drv
    assert push(release, place.write, settings, tmp_path) == 2
    assert push(release, place.write, settings, tmp_path) == 0
    got = taker.ask(release.graph, drv, place.read)
    assert list(got.taken) == [drv]  # what is below it is not asked for
    assert got.notes == []
    known, mine = taker.store.realized(drv), release.store.realized(drv)
    assert known is not None
    assert mine is not None
    assert known.outputs == mine.outputs
    assert taker.store.contains(release.trees[3])
    assert taker.store.verify().problems == []
    assert list(tmp_path.glob("partial/*")) == list(tmp_path.glob("partial/*.lock"))


def test_another_makers_key_is_added_where_the_first_is_not_trusted(
    place: Place, release: Release, taker: Taker, settings: FetchSettings, tmp_path: Path
) -> None:
    other = TestSigner(2)
    push(release, place.write, settings, tmp_path)
    drv = release.target.drv
    got = taker.ask(release.graph, drv, place.read, trust=TestTrust(other.key))
    assert got.taken == {}
    assert "no key that is trusted here" in got.notes[0]
    assert push(release, place.write, settings, tmp_path, other) == 2
    got = taker.ask(release.graph, drv, place.read, trust=TestTrust(other.key))
    assert list(got.taken) == [drv]


def test_a_changed_entry_is_not_believed(
    place: Place, release: Release, taker: Taker, settings: FetchSettings, tmp_path: Path
) -> None:
    push(release, place.write, settings, tmp_path)
    place.damage(release.target.drv)
    got = taker.ask(release.graph, release.target.drv, place.read)
    assert release.target.drv not in got.taken
    assert got.notes
    assert taker.store.realized(release.target.drv) is None


def test_not_here_is_asked_once_an_hour_and_forgotten_by_a_push(
    place: Place,
    release: Release,
    taker: Taker,
    settings: FetchSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = make_release(tmp_path / "other", result={"another": b"thing\n"})
    with closing(other.store):
        assert other.target.drv == release.target.drv  # a recipe knows nothing of its result
    push(release, place.write, settings, tmp_path)
    fresh = Graph()
    drv = fresh.add(replace(release.graph.nodes[release.target.drv], params={"new": 1}, inputs=()))
    address = place.read
    for _ in range(3):
        got = taker.ask(fresh, drv, address)
        assert got.taken == {}
        assert got.notes == []
    assert place.asked(drv) == 1
    monkeypatch.setattr(absent, "FORGET", -1)
    taker.ask(fresh, drv, address)
    assert place.asked(drv) == 2


def test_one_that_is_not_there_is_passed_over(
    place: Place, release: Release, taker: Taker, settings: FetchSettings, tmp_path: Path
) -> None:
    push(release, place.write, settings, tmp_path)
    nobody = "127.0.0.1:9"
    dead = f"oci://{nobody}/a/b" if place.read.startswith("oci://") else f"http://{nobody}"
    got = taker.ask(release.graph, release.target.drv, dead, place.read)
    assert list(got.taken) == [release.target.drv]
    assert len(got.notes) == 1
    assert "is not asked any more" in got.notes[0]


def test_one_that_is_no_cache_says_so(
    place: Place, release: Release, taker: Taker, settings: FetchSettings, tmp_path: Path
) -> None:
    """Where nothing was ever pushed, silence would look like "not here"."""
    got = taker.ask(release.graph, release.target.drv, place.read)
    assert got.taken == {}
    assert len(got.notes) == 1


@contextmanager
def trickling() -> Iterator[str]:
    """A server that promises much and gives a byte now and then."""
    over = threading.Event()

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not over.wait(0.05):
                client.sendall(b"x")

    def accept(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        over.set()


@pytest.mark.parametrize("scheme", ["http://{}", "oci://{}/team/cache"])
def test_one_that_trickles_is_left(
    scheme: str, release: Release, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes well within the time that a silence may last."""
    real = patience.impatient
    for module in ("static", "registry"):
        monkeypatch.setattr(
            f"reprobuild.adapters.substituter.{module}.impatient",
            lambda given: replace(real(given), read_timeout=0.4, backoff=0.01),
        )
    with trickling() as host:
        got = taker.ask(release.graph, release.target.drv, scheme.format(host))
    assert got.taken == {}
    assert "too slowly" in got.notes[0]


def test_one_that_takes_too_long_to_answer_is_left(
    place: Place,
    release: Release,
    taker: Taker,
    settings: FetchSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push(release, place.write, settings, tmp_path)
    monkeypatch.setattr(patience, "ANSWER", -1.0)
    got = taker.ask(release.graph, release.target.drv, place.read)
    assert got.taken == {}
    assert "for one answer" in got.notes[0]


def _odd(path: Path, kind: str) -> None:
    if path.exists():
        path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["directory", "device", "fifo"])
def test_a_mark_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    _odd(tmp_path / "reprobuild-cache", kind)
    with pytest.raises(ReprobuildError) as caught:
        CacheDirectory(str(tmp_path))
    assert caught.value.code == "E-BUNDLE"
    assert "reprobuild-cache" in caught.value.message
    assert [p.name for p in tmp_path.iterdir()] == ["reprobuild-cache"]


def test_a_mark_that_goes_on_is_another_format_s(tmp_path: Path) -> None:
    (tmp_path / "reprobuild-cache").write_bytes(b"reprobuild cache 0\n" + bytes(2**20))
    with pytest.raises(ReprobuildError) as caught:
        CacheDirectory(str(tmp_path))
    assert caught.value.code == "E-BUNDLE"


@pytest.mark.parametrize("kind", ["directory", "device", "fifo"])
@pytest.mark.parametrize("which", ["drvs", "bundles"])
def test_an_entry_or_bundle_that_is_no_file_is_refused(
    release: Release, settings: FetchSettings, tmp_path: Path, which: str, kind: str
) -> None:
    push(release, str(tmp_path / "cache"), settings, tmp_path)
    for path in list((tmp_path / "cache" / which).rglob("*")):
        if path.is_file():
            _odd(path, kind)
    if which == "bundles":
        for path in (tmp_path / "cache" / "drvs").rglob("*.json"):
            path.unlink()
    with pytest.raises(ReprobuildError) as caught:
        push(release, str(tmp_path / "cache"), settings, tmp_path)
    assert caught.value.code == "E-WRITE"


def test_without_a_login_a_push_says_how_to_log_in(
    release: Release, settings: FetchSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none.json"))
    (tmp_path / "registry").mkdir()
    with running(tmp_path / "registry", login=True) as host:
        with pytest.raises(ReprobuildError) as caught:
            push(release, f"oci://{host}/team/cache", settings, tmp_path)
        assert caught.value.code == "E-REGISTRY"
        assert "docker login" in (caught.value.hint or "")
        offline = replace(settings, offline=True)
        with pytest.raises(ReprobuildError) as caught:
            push(release, f"oci://{host}/team/cache", offline, tmp_path)
        assert caught.value.code == "E-OFFLINE"


@pytest.mark.parametrize(
    "address", ["oci://", "oci://team/cache", "oci://h.example/a:tag@x", "oci://h.example/A b"]
)
def test_addresses_that_name_no_repository(address: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        repository_of(address)
    assert caught.value.code == "E-USAGE"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"config":{}}', b'{"config":{"data":"e30=","mediaType":"x"}}',
     b'{"config":{"data":"e30=","mediaType":"application/vnd.reprobuild.cache-entry.v0+json"}}',
     b'{"config":{"data":7,"mediaType":"x"}}', b"[" * 100_000],
)  # fmt: skip
def test_artifacts_of_another_make(data: bytes) -> None:
    with pytest.raises(ReprobuildError) as caught:
        parse_entry_manifest(data)
    assert caught.value.code == "E-BUNDLE"
