"""Binary caches: pushed to a directory, served by a web server, believed only when signed."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.demo import Demo, needs_sandbox
from support.registry import LOGIN, running

pytestmark = needs_sandbox


@contextmanager
def served(directory: Path, asked: list[str]) -> Iterator[str]:
    """A plain web server over a directory; what it was asked is noted."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def maker(realized: Demo, tmp_path: Path) -> Demo:
    """Has everything, and a key."""
    realized.env["HOME"] = str(tmp_path / "maker")
    realized.run("key", "generate")
    return realized


@pytest.fixture
def cache(maker: Demo, tmp_path: Path) -> Path:
    """A cache with the maker's results."""
    answer = maker.json("push", "demo", str(tmp_path / "cache"))
    assert answer["pushed"] > 8
    assert answer["not_made"] == 0
    again = maker.json("push", "demo", str(tmp_path / "cache"))
    assert again["pushed"] == 0
    return tmp_path / "cache"


@pytest.fixture
def taker(maker: Demo, tmp_path: Path) -> Demo:
    """Has nothing, and believes the maker."""
    fresh = maker.clone(tmp_path / "taker/project", tmp_path / "taker/store")
    fresh.env["HOME"] = str(tmp_path / "taker")
    trust = tmp_path / "taker/.config/reprobuild/trust"
    trust.mkdir(parents=True)
    shutil.copy(tmp_path / "maker/.config/reprobuild/keys/default.pub", trust / "maker.pub")
    return fresh


def test_nothing_is_built_that_a_cache_has(maker: Demo, taker: Demo, cache: Path) -> None:
    before = maker.json("realize")
    after = taker.json("--offline", "realize", "--substituter", str(cache))
    assert after["image"] == before["image"]
    assert after["counts"]["built"] == after["counts"]["fetched"] == 0
    assert after["substituted"] == {"from": {cache.as_uri(): 1}, "notes": [], "taken": 1}
    assert (after["counts"]["taken"], after["counts"]["reused"]) == (1, 0)
    taker.verify()
    taker.json("store", "gc")
    assert taker.json("--offline", "realize")["counts"]["built"] == 0


def test_what_a_cache_gave_is_said_and_only_once(taker: Demo, cache: Path) -> None:
    first = taker.run("--offline", "realize", "--substituter", str(cache)).out
    assert first.splitlines()[-1] == f"taken 1 from {cache.as_uri()}"
    again = taker.run("--offline", "realize", "--substituter", str(cache)).out
    assert again.splitlines()[-1] == "nothing to do"
    assert taker.json("realize", "--substituter", str(cache))["substituted"]["taken"] == 0
    assert "substituted" not in taker.json("realize")


def test_what_was_cut_off_is_had_by_its_own_recipe(maker: Demo, tmp_path: Path) -> None:
    """A changed comment is stripped: what follows stands on the record of another recipe."""
    pull = maker.path / "fixtures/header/pull-2/header.txt"
    pull.write_text(pull.read_text().replace("# the header", "# another comment"))
    maker.run("lock", "--update", "header")
    assert maker.json("realize", "demo.program")["counts"]["cut_off"] >= 1
    said = maker.run("push", "demo.program", str(tmp_path / "cache")).out
    assert "there already" not in said, "the directory is new"
    fresh = maker.clone(tmp_path / "taker/project", tmp_path / "taker/store")
    assert fresh.json("--offline", "pull", "demo.program", str(tmp_path / "cache"))["taken"] == 1


def test_a_registry_is_a_cache(maker: Demo, taker: Demo, tmp_path: Path) -> None:
    """One that wants a login: whoever has one pushes, pulls and builds nothing."""
    before = maker.json("realize")
    (tmp_path / "registry").mkdir()
    with running(tmp_path / "registry", login=True) as host:
        url = f"oci://{host}/team/cache"
        assert maker.run("--json", "push", "demo", url, status=10).error["code"] == "E-REGISTRY"
        (tmp_path / "docker").mkdir()
        login = {"auths": {host: {"auth": LOGIN}}}
        (tmp_path / "docker/config.json").write_text(json.dumps(login))
        maker.env["DOCKER_CONFIG"] = str(tmp_path / "docker")
        first = maker.json("push", "demo", url)
        assert first["cache"] == url
        assert first["pushed"] > 8
        again = maker.json("push", "demo", url)
        assert (again["pushed"], again["present"]) == (0, first["pushed"])
        # who may not read it builds
        stranger = taker.run("--json", "pull", "demo", url, status=4).document
        assert "wants a login" in stranger["error"]["hint"]
        taker.env["DOCKER_CONFIG"] = str(tmp_path / "docker")
        assert taker.json("pull", "demo.header", url)["taken"] == 1
        after = taker.json("realize", "--substituter", url)
    assert after["image"] == before["image"]
    assert after["counts"]["built"] == after["counts"]["fetched"] == 0
    assert after["substituted"]["notes"] == []
    taker.verify()


def test_pull_says_what_it_did(taker: Demo, cache: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    failed = taker.run("pull", "demo.header", str(missing), status=4).err
    assert failed.count("is not asked any more") == 1
    url = cache.as_uri()
    assert taker.run("pull", "demo.header", str(cache)).out.endswith(f"took 1 result from {url}\n")
    again = taker.run("pull", "demo.header", str(missing)).out
    assert again.endswith(
        f"took nothing: it was here already, and {missing.as_uri()} was not asked\n"
    )


def test_over_http_and_asked_once(maker: Demo, taker: Demo, cache: Path) -> None:
    asked: list[str] = []
    with served(cache, asked) as url:
        got = taker.json("pull", "demo.header", url)
        assert got["taken"] == 1
        victim = next(iter(got["outputs"].values()))["drv"].removeprefix("blake3:")
        assert any(victim in path for path in asked)
        # what it does not have is asked for once
        for path in cache.glob("drvs/*/*.json"):
            path.unlink()
        taker.run("pull", "demo.notes", url, status=4)
        count = len([p for p in asked if "/drvs/" in p])
        taker.run("pull", "demo.notes", url, status=4)
        assert len([p for p in asked if "/drvs/" in p]) == count


def test_without_trust_everything_is_built(taker: Demo, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "taker/.config/reprobuild/trust/maker.pub").unlink()
    after = taker.json("realize", "--substituter", str(cache))
    assert after["counts"]["built"] > 8
    assert after["substituted"]["taken"] == 0
    assert "no key that is trusted here" in after["substituted"]["notes"][0]


def test_broken_ones_are_passed_over(maker: Demo, taker: Demo, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = ["--substituter", "http://127.0.0.1:9", "--substituter", str(tmp_path / "empty"),
             "--substituter", str(cache)]  # fmt: skip
    after = taker.json("realize", *words)
    assert after["counts"]["built"] == 0
    assert after["substituted"]["taken"] == 1
    assert len(after["substituted"]["notes"]) == 2


@pytest.mark.parametrize("what", ["entry", "bundle", "swap"])
def test_a_lying_cache_is_found_out(maker: Demo, taker: Demo, cache: Path, what: str) -> None:
    entries = sorted(cache.glob("drvs/*/*.json"))
    if what == "entry":  # another tree for the same recipe, the signature kept
        documents = [json.loads(path.read_bytes()) for path in entries]
        outputs = [document["record"]["outputs"] for document in documents]
        for path, document, other in zip(
            entries, documents, [*outputs[1:], outputs[0]], strict=True
        ):
            document["record"]["outputs"] = other
            path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    elif what == "bundle":
        for path in cache.glob("bundles/*/*"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
    else:  # a true entry, in another's place
        texts = [p.read_bytes() for p in entries]
        for path, text in zip(entries, [*texts[1:], texts[0]], strict=True):
            path.write_bytes(text)
    before = maker.json("realize")
    after = taker.json("realize", "--substituter", str(cache))
    assert after["image"] == before["image"]
    assert after["counts"]["built"] > 5
    assert after["substituted"]["notes"]
    taker.verify()


def test_a_weaker_build_does_not_serve(maker: Demo, taker: Demo, tmp_path: Path) -> None:
    """An entry of isolation `none` stands for no build that asks for more."""
    from reprobuild.adapters.bundle.service import Bundles
    from reprobuild.adapters.fetch.settings import FetchSettings
    from reprobuild.adapters.keys.keyring import Keyring
    from reprobuild.adapters.store.store import LocalStore
    from reprobuild.core.derivation import Isolation
    from reprobuild.core.record import Record
    from reprobuild.engine.substitute import cache_shipment
    from reprobuild.settings import Settings

    with LocalStore.open(maker.store) as store:
        bundles = Bundles(lambda: store, Settings())
        directory = bundles.cache_writer(
            str(tmp_path / "weak"), FetchSettings(tmp_path / "partial")
        )
        signer = Keyring(tmp_path / "maker/.config/reprobuild").signer()
        for path in sorted((store.path / "records").rglob("*")):
            if path.is_file():
                old = Record.decode(path.read_bytes())
                weak = Record(old.action, old.drv, old.outputs, Isolation.NONE, name=old.name)
                bundles.put_in_cache(directory, weak, *cache_shipment(store, weak), signer)
    after = taker.json("realize", "--substituter", str(tmp_path / "weak"))
    assert after["substituted"]["taken"] == 0
    assert after["counts"]["built"] > 8
