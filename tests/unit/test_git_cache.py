"""Remotes: one look a repository, objects kept, what was seen remembered for later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.git import transport
from reprobuild.adapters.git.cache import GitCache, read_refs
from reprobuild.core.digest import GitOid
from reprobuild.errors import ReprobuildError
from support.gitkit import Daemon, Origin, git, git_daemon


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Origin, str]]:
    origin = Origin.make(tmp_path / "srv" / "origin.git")
    base = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    origin.pull(1, {"b": "b\n"}, [base])
    origin.pull(2, {"c": "c\n"}, [base])
    with git_daemon(tmp_path / "srv") as daemon:
        yield origin, daemon.url("origin.git")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    calls: list[list[str]] = []
    real = transport.list_refs

    def listing(url: str, refs: list[str]) -> dict[str, GitOid]:
        calls.append(list(refs))
        return real(url, refs)

    monkeypatch.setattr(transport, "list_refs", listing)
    return calls


def test_a_repository_is_asked_once_for_all_that_is_expected(
    served: tuple[Origin, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, url = served
    calls = counted(monkeypatch)
    cache = GitCache(tmp_path / "cache", base=tmp_path)
    wanted = ["refs/heads/main", "refs/pull/1/head", "refs/pull/2/head", "refs/pull/9/head"]
    cache.expect({url: wanted})
    assert cache.resolve(url, ["refs/heads/main"]).keys() == {"refs/heads/main"}
    assert cache.resolve(url, ["refs/pull/1/head"]) == {"refs/pull/1/head": origin.pulls[1]}
    assert cache.resolve(url, ["refs/pull/9/head"]) == {}
    assert cache.resolve(url, ["refs/pull/2/head"]) == {"refs/pull/2/head": origin.pulls[2]}
    assert calls == [sorted(wanted)]


def test_offline_a_remote_is_as_it_was_last_seen(
    served: tuple[Origin, str], tmp_path: Path
) -> None:
    origin, url = served
    online = GitCache(tmp_path / "cache", base=tmp_path)
    seen = online.resolve(url, ["refs/heads/main", "refs/pull/1/head"])
    offline = GitCache(tmp_path / "cache", base=tmp_path, offline=True)
    assert offline.resolve(url, ["refs/heads/main", "refs/pull/1/head"]) == seen
    with pytest.raises(ReprobuildError) as caught:
        offline.resolve(url, ["refs/heads/main", "refs/pull/2/head"])
    assert caught.value.code == "E-OFFLINE"
    assert caught.value.facts["refs"] == ["refs/pull/2/head"]
    with pytest.raises(ReprobuildError) as caught:
        offline.locate(url, [origin.pulls[1]])
    assert caught.value.exit_status == 8


def test_fetched_commits_stay_and_are_not_fetched_again(
    served: tuple[Origin, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, url = served
    cache = GitCache(tmp_path / "cache", base=tmp_path)
    first = cache.locate(url, [origin.pulls[1]])
    git(cache.path(url), "gc", "--quiet", "--prune=now")
    fetched: list[object] = []
    monkeypatch.setattr(transport, "fetch", lambda *a, **k: fetched.append(a))
    assert cache.locate(url, [origin.pulls[1]]).sources == first.sources
    assert fetched == []


def test_a_commit_that_nobody_has(served: tuple[Origin, str], tmp_path: Path) -> None:
    _, url = served
    cache = GitCache(tmp_path / "cache", base=tmp_path)
    with pytest.raises(ReprobuildError) as caught:
        cache.locate(url, [GitOid("1" * 40)], ["refs/heads/main"])
    assert caught.value.exit_status == 4


def test_mirrors_are_tried_in_order_and_secrets_stay_hidden(
    served: tuple[Origin, str], tmp_path: Path
) -> None:
    origin, url = served
    dead = "git://user:secret@127.0.0.1:1/origin.git"
    cache = GitCache(tmp_path / "cache", rewrite=lambda u: [dead, url], base=tmp_path)
    place = "https://forge.invalid/x.git"
    assert cache.resolve(place, ["refs/heads/main"]).keys() == {"refs/heads/main"}
    assert cache.locate(place, [origin.pulls[1]]).remote == url
    lost = GitCache(tmp_path / "other", rewrite=lambda u: [dead], base=tmp_path)
    with pytest.raises(ReprobuildError) as caught:
        lost.resolve(place, ["refs/heads/main"])
    assert caught.value.code == "E-GIT-FETCH"
    assert "secret" not in str(caught.value.as_document())


def test_a_local_mirror_is_read_in_place(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "mirror.git")
    base = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    cache = GitCache(
        tmp_path / "cache", rewrite=lambda u: [f"file://{origin.path}", u], base=tmp_path,
        offline=True,
    )  # fmt: skip
    place = "https://forge.invalid/x.git"
    assert cache.resolve(place, ["refs/heads/main"]) == {"refs/heads/main": base}
    assert cache.locate(place, [base]).sources == (origin.path,)
    assert not (tmp_path / "cache").exists()


def test_a_mirror_that_lacks_a_commit_is_named(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "mirror.git")
    base = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    place = "http://127.0.0.1:9/x.git"
    absent = GitOid("1" * 40)
    for offline, code in ((False, "E-GIT-FETCH"), (True, "E-OFFLINE")):
        cache = GitCache(
            tmp_path / "cache", rewrite=lambda u: [f"file://{origin.path}", u], base=tmp_path,
            offline=offline,
        )  # fmt: skip
        with pytest.raises(ReprobuildError) as caught:
            cache.locate(place, [base, absent])
        assert caught.value.code == code
        assert caught.value.facts["lacking"] == [str(origin.path)]
        assert absent.hex in caught.value.hint + caught.value.message


def test_refs_loose_packed_symbolic_and_annotated(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    git(origin.path, "tag", "-a", "-m", "v1", "v1", base.hex)
    git(origin.path, "pack-refs", "--all")
    newer = origin.commit({"b": "b\n"}, [base], ref="refs/heads/next")
    git(origin.path, "symbolic-ref", "refs/heads/alias", "refs/heads/next")
    blob = git(origin.path, "rev-parse", f"{base}:a")
    git(origin.path, "update-ref", "refs/tags/of-a-file", blob)
    there = {
        "refs/heads/main": base,
        "refs/tags/v1": base,
        "refs/heads/next": newer,
        "refs/heads/alias": newer,
    }
    absent = ["refs/heads/nowhere", "refs/heads/mai", "refs/tags/of-a-file"]
    assert read_refs(origin.path, [*absent, *there]) == there
    assert read_refs(origin.path, absent) == {}


def test_tags_of_a_remote_are_peeled(served: tuple[Origin, str], tmp_path: Path) -> None:
    origin, url = served
    head = origin.pulls[1]
    git(origin.path, "tag", "-a", "-m", "v1", "v1", head.hex)
    cache = GitCache(tmp_path / "cache", base=tmp_path)
    assert cache.resolve(url, ["refs/tags/v1"]) == {"refs/tags/v1": head}


def test_a_remote_gets_credentials_and_proxies_but_no_identity() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", "http://proxy.example.org:8080")
        patch.setenv("GIT_SSL_CAINFO", "/etc/ca.pem")
        patch.setenv("GIT_DIR", "/elsewhere")
        patch.setenv("GIT_EXEC_PATH", "/evil")
        env = transport.transport_environment()
    assert env["HTTPS_PROXY"] == "http://proxy.example.org:8080"
    assert env["GIT_SSL_CAINFO"] == "/etc/ca.pem"
    assert "GIT_DIR" not in env and "GIT_EXEC_PATH" not in env
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert "ext" not in env["GIT_ALLOW_PROTOCOL"].split(":")
    assert env["PATH"] == os.environ["PATH"]


__all__ = ["Daemon"]


@pytest.mark.parametrize("mask", [0, 0o077])
def test_a_cache_has_the_same_modes_under_any_umask(
    served: tuple[Origin, str], tmp_path: Path, mask: int
) -> None:
    _, url = served
    old = os.umask(mask)
    try:
        cache = GitCache(tmp_path / "home" / "cache", base=tmp_path)
        seen = cache.resolve(url, ["refs/heads/main"])
        cache.locate(url, list(seen.values()), ["refs/heads/main"])
    finally:
        os.umask(old)
    made = [tmp_path / "home" / "cache", *(tmp_path / "home" / "cache").rglob("*")]
    assert len(made) > 5
    modes = {p.stat().st_mode & 0o7777 for p in made if p.is_dir()}
    assert modes == {0o755}
    assert all(p.stat().st_mode & 0o022 == 0 for p in made)
