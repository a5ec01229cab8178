"""Pushing in pieces: resumed, mounted, redirected; and nothing half-published, whatever fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.docker import upload as upload_module
from reprobuild.adapters.docker.push import RegistrySink
from reprobuild.adapters.docker.referrers import referrers
from reprobuild.adapters.docker.repository import Repository
from reprobuild.adapters.fetch.http.session import Access
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.oci.storelayout import read_image
from reprobuild.core.attachment import DSSE, SPDX, Attachment
from reprobuild.core.image import ImageFacts
from reprobuild.errors import ReprobuildError
from support.fakeregistry import CUT, Answer, FakeRegistry, digest_of, fake_registry
from support.images import image, layer
from support.registry import running

PIECE = 20_000


@pytest.fixture(autouse=True)
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-docker"))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none.json"))


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


@pytest.fixture
def layout(store: MemoryStore) -> tuple[Path, ImageFacts]:
    """An image whose first layer takes several pieces: its bytes do not compress."""
    noise = b"".join(digest_of(b"%d" % n).encode() for n in range(3000))
    tree = image(store, {"big": layer(store, {"big": noise}), "small": layer(store, {"s": b"1"})})
    facts = read_image(store, tree)
    assert facts.layers[0].size > 4 * PIECE
    return store.materialise(tree), facts


def sink(memory: Path | None = None) -> RegistrySink:
    return RegistrySink(backoff=0, memory=memory, piece=PIECE)


def whole(registry: FakeRegistry, facts: ImageFacts, repository: str = "x") -> bool:
    """Whether the image is there with every blob, as it is."""
    blobs = [facts.config_digest, *(la.digest for la in facts.layers)]
    return (repository, str(facts.manifest_digest)) in registry.manifests and all(
        digest_of(registry.blobs[repository, str(d)]) == str(d) for d in blobs
    )


def test_large_blobs_go_in_pieces(layout: tuple[Path, ImageFacts]) -> None:
    path, facts = layout
    with fake_registry() as registry:
        answer = sink().put(path, f"{registry.host}/x:1", tags=("2", "latest"))
    pieces = [n for method, _, n in registry.calls if method == "PATCH"]
    assert sum(pieces) == facts.layers[0].size
    assert max(pieces) == PIECE
    assert registry.tags("x") == {"1", "2", "latest"}
    assert whole(registry, facts)
    assert (answer["uploaded"], int(answer["sent"])) == ("3", registry.sent())


def test_tags_come_last(layout: tuple[Path, ImageFacts]) -> None:
    path, _ = layout
    note = Attachment("n", DSSE, b"{}")
    with fake_registry() as registry:
        sink().put(path, f"{registry.host}/x:1", tags=("2",), attachments=(note,))
    puts = [p for m, p, _ in registry.calls if m == "PUT"]
    names = [p.rpartition("/")[2] for p in puts if "/manifests/" in p]
    assert names[-2:] == ["1", "2"]
    assert (names.count("1"), names.count("2")) == (1, 1)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("PATCH", (429, {"Retry-After": "0"}, b"")),
        ("PATCH", (500, {}, b"")),
        ("PUT", (503, {}, b"")),
        ("POST", (502, {}, b"")),
        ("PATCH", CUT),
        ("HEAD", (429, {}, b"")),
    ],
    ids=str,
)
def test_what_passes_is_overcome(
    layout: tuple[Path, ImageFacts], method: str, answer: Answer | str
) -> None:
    path, facts = layout
    with fake_registry() as registry:
        registry.fault = lambda m, _, before: answer if (m, before) == (method, 2) else None
        sink().put(path, f"{registry.host}/x:1")
    assert whole(registry, facts)
    assert registry.tags("x") == {"1"}
    # At most one piece was sent again.
    assert registry.sent() <= sum(la.size for la in facts.layers) + 3 * PIECE


def test_a_cut_goes_on_where_it_was(layout: tuple[Path, ImageFacts]) -> None:
    path, facts = layout
    with fake_registry() as registry:
        registry.fault = lambda m, _, before: CUT if (m, before) == ("PATCH", 1) else None
        sink().put(path, f"{registry.host}/x:1")
    sent = sum(n for m, p, n in registry.calls if m == "PATCH")
    assert sent == facts.layers[0].size
    assert whole(registry, facts)


def test_a_lost_session_begins_anew(layout: tuple[Path, ImageFacts]) -> None:
    path, facts = layout
    with fake_registry() as registry:

        def lose(method: str, _: str, before: int) -> None:
            if (method, before) == ("PATCH", 2):
                registry.uploads.clear()

        registry.fault = lose
        sink().put(path, f"{registry.host}/x:1")
    assert whole(registry, facts)


@pytest.mark.parametrize("status", [307, 308])
def test_redirects_are_followed(layout: tuple[Path, ImageFacts], status: int) -> None:
    path, facts = layout
    with fake_registry() as other, fake_registry() as registry:
        other.blobs, other.uploads = registry.blobs, registry.uploads

        def lead(method: str, where: str, _: int) -> Answer | None:
            if method in ("PATCH", "PUT") and "/uploads/" in where:
                return status, {"Location": f"http://{other.host}{where}"}, b""
            return None

        registry.fault = lead
        sink().put(path, f"{registry.host}/x:1")
    assert whole(registry, facts)
    assert other.sent() > facts.layers[0].size


def test_a_registry_that_lies_about_a_digest(layout: tuple[Path, ImageFacts]) -> None:
    path, _ = layout
    with fake_registry() as registry:
        registry.fault = lambda m, p, _: (
            (201, {"Docker-Content-Digest": "sha256:" + "0" * 64}, b"")
            if m == "PUT" and "/uploads/" in p
            else None
        )
        with pytest.raises(ReprobuildError) as error:
            sink().put(path, f"{registry.host}/x:1")
    assert error.value.code == "E-REGISTRY"
    assert "for 'sha256:0000" in error.value.message
    assert not registry.manifests


class Killed(BaseException):
    """As a signal would end it."""


@pytest.mark.parametrize("at", range(9))
def test_a_killed_push_is_resumed(
    layout: tuple[Path, ImageFacts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Killed at any request: no tag; the next push sends no more than what was missing."""
    path, facts = layout
    original = Repository.ask
    done = 0

    def killed(self: Repository, method: str, *rest: Any, **options: Any) -> Any:
        nonlocal done
        if method in ("PATCH", "PUT"):
            done += 1
            if done > at:
                raise Killed
        return original(self, method, *rest, **options)

    with fake_registry() as registry:
        monkeypatch.setattr(Repository, "ask", killed)
        with pytest.raises(Killed):
            sink(tmp_path / "memory").put(path, f"{registry.host}/x:1")
        assert registry.tags("x") == set()
        monkeypatch.setattr(Repository, "ask", original)
        sink(tmp_path / "memory").put(path, f"{registry.host}/x:1")
        assert whole(registry, facts)
        assert registry.tags("x") == {"1"}
        config = len(registry.blobs["x", str(facts.config_digest)])
        assert registry.sent() == sum(la.size for la in facts.layers) + config
    assert not [p for p in (tmp_path / "memory/sessions").glob("*") if p.is_file()]


def test_a_session_that_holds_something_else(
    layout: tuple[Path, ImageFacts], tmp_path: Path
) -> None:
    path, facts = layout
    with fake_registry() as registry:
        registry.fault = lambda m, _, n: (403, {}, b"") if (m, n) == ("PATCH", 2) else None
        with pytest.raises(ReprobuildError):
            sink(tmp_path / "memory").put(path, f"{registry.host}/x:1")
        for data in registry.uploads.values():
            data[:] = bytes(len(data))
        registry.fault = lambda *_: None
        sink(tmp_path / "memory").put(path, f"{registry.host}/x:1")
        assert whole(registry, facts)


def test_what_is_open_is_the_users_alone(
    layout: tuple[Path, ImageFacts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = layout
    with fake_registry() as registry:
        registry.fault = lambda m, _, n: (403, {}, b"") if (m, n) == ("PATCH", 2) else None
        with pytest.raises(ReprobuildError):
            sink(tmp_path / "memory").put(path, f"{registry.host}/x:1")
    (file,) = (tmp_path / "memory/sessions").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_blobs_are_mounted_from_elsewhere(layout: tuple[Path, ImageFacts], tmp_path: Path) -> None:
    path, facts = layout
    with fake_registry() as registry:
        sink(tmp_path / "m").put(path, f"{registry.host}/first:1")
        answer = sink(tmp_path / "m").put(path, f"{registry.host}/second:1")
        assert (answer["mounted"], answer["uploaded"], answer["sent"]) == ("3", "0", "0")
        other = sink().put(path, f"{registry.host}/third:1", mount_from=("first",))
        assert other["mounted"] == "3"
        assert whole(registry, facts, "third")


def test_mounting_from_where_it_is_not(layout: tuple[Path, ImageFacts]) -> None:
    path, facts = layout
    with fake_registry() as registry:
        answer = sink().put(path, f"{registry.host}/x:1", mount_from=("nothing",))
    assert answer["uploaded"] == "3"
    assert whole(registry, facts)


def documents(host: str, facts: ImageFacts) -> list[tuple[str, bytes]]:
    target = ImageReference.parse(f"{host}/x:1")
    repository = Repository(target, Access(), 0)
    try:
        found = referrers(repository, str(facts.manifest_digest))
        return sorted((a.media_type, a.data) for a in found)
    finally:
        repository.close()


NOTES = (Attachment("a", DSSE, b'{"a": 1}'), Attachment("b", SPDX, b'{"b": 2}', {"k": "v"}))


@pytest.mark.parametrize("api", [True, False])
def test_referrers(layout: tuple[Path, ImageFacts], api: bool) -> None:
    path, facts = layout
    with fake_registry(referrers_api=api) as registry:
        sink().put(path, f"{registry.host}/x:1", attachments=NOTES[:1])
        sink().put(path, f"{registry.host}/x:1", attachments=NOTES)
        assert documents(registry.host, facts) == sorted((n.media_type, n.data) for n in NOTES)
        fallback = str(facts.manifest_digest).replace(":", "-")
        assert (fallback in registry.tags("x")) is not api


def test_referrers_in_a_real_registry(layout: tuple[Path, ImageFacts], tmp_path: Path) -> None:
    """docker-registry 2.8 has no referrers: the tag stands in."""
    path, facts = layout
    with running(tmp_path) as host:
        first = sink(tmp_path / "m").put(path, f"{host}/x:1", attachments=NOTES)
        again = sink(tmp_path / "m").put(path, f"{host}/x:1", attachments=NOTES)
        moved = sink(tmp_path / "m").put(path, f"{host}/y:1", tags=("2", "3"))
        assert documents(host, facts) == sorted((n.media_type, n.data) for n in NOTES)
    assert (first["uploaded"], again["sent"], moved["mounted"]) == ("3", "0", "3")


def test_a_referrer_that_is_something_else(layout: tuple[Path, ImageFacts]) -> None:
    path, facts = layout
    with fake_registry() as registry:
        sink().put(path, f"{registry.host}/x:1", attachments=NOTES)
        for (repository, name), data in list(registry.blobs.items()):
            if data == NOTES[0].data:
                registry.blobs[repository, name] = b"forged"
        with pytest.raises(ReprobuildError) as error:
            documents(registry.host, facts)
    assert error.value.code == "E-IMAGE-VERIFY"


def test_pieces_bound_what_is_held() -> None:
    assert upload_module.PIECE <= 16 * 2**20
