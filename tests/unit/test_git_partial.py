"""Partial clones as sources: promisors on this machine are read in place, others are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reprobuild.adapters.git.cache import GitCache
from reprobuild.adapters.git.partial import promisors
from reprobuild.adapters.git.sources import GitSources
from reprobuild.core.digest import GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.strategies import integrate
from reprobuild.errors import ReprobuildError
from support.gitkit import Origin, git, merge_spec, opened

LINES = "".join(f"line {n}\n" for n in range(1, 21))


def _partial(origin: Origin, into: Path, url: str) -> Path:
    git(origin.path, "config", "uploadpack.allowFilter", "true")
    git(into.parent, "init", "--quiet", "--bare", str(into))
    git(into, "remote", "add", "origin", f"file://{origin.path}")
    git(into, "fetch", "--quiet", "--filter=blob:none", "origin", "+refs/*:refs/*")
    git(into, "config", "remote.origin.url", url)
    return into


def _stack(place: Path) -> tuple[Origin, GitOid]:
    origin = Origin.make(place)
    base = origin.commit({"a": LINES}, ref="refs/heads/main")
    origin.pull(1, {"a": LINES.replace("line 1\n", "one\n")}, [base])
    origin.pull(2, {"a": LINES.replace("line 20\n", "twenty\n"), "n": "n\n"}, [base])
    return origin, base


def _sources(tmp_path: Path) -> GitSources:
    cache = GitCache(tmp_path / "cache", base=tmp_path, offline=True)
    return GitSources(cache, tmp_path / "fixtures", tmp_path)


def test_a_promisor_on_this_machine_is_read_in_place(tmp_path: Path) -> None:
    origin, base = _stack(tmp_path / "origin.git")
    clone = _partial(origin, tmp_path / "partial.git", f"file://{origin.path}")
    spec = merge_spec(origin, base, 1, 2)
    with opened(origin.path) as repository:
        expected = integrate(repository, spec)
    document: dict[str, Value] = {"kind": "git", "url": str(clone)}
    before = sorted(p.name for p in (clone / "objects/pack").iterdir())
    with _sources(tmp_path).open(document, spec) as repository:
        assert integrate(repository, spec).tree == expected.tree
    assert sorted(p.name for p in (clone / "objects/pack").iterdir()) == before
    assert not (tmp_path / "cache").exists()


def test_a_promisor_elsewhere_is_named_and_not_asked(tmp_path: Path) -> None:
    origin, base = _stack(tmp_path / "origin.git")
    url = "https://user:secret@forge.invalid/x.git"
    clone = _partial(origin, tmp_path / "partial.git", url)
    spec = merge_spec(origin, base, 1, 2)
    shutil.rmtree(origin.path)
    document: dict[str, Value] = {"kind": "git", "url": str(clone)}
    with (
        pytest.raises(ReprobuildError) as caught,
        _sources(tmp_path).open(document, spec) as repository,
    ):
        integrate(repository, spec)
    assert caught.value.code == "E-GIT-MISSING-OBJECT"
    assert caught.value.facts["partial"] == [f"{clone} of https://forge.invalid/x.git"]
    assert "[mirrors]" in caught.value.hint
    assert "secret" not in str(caught.value.as_document())


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% ran", "--upload-pack=touch ran", "../origin.git", "/dev/null"]
)
def test_addresses_of_a_promisor_are_judged_like_any_other(tmp_path: Path, url: str) -> None:
    origin, base = _stack(tmp_path / "origin.git")
    clone = _partial(origin, tmp_path / "partial.git", url)
    assert promisors(clone) == [url]
    document: dict[str, Value] = {"kind": "git", "url": str(clone)}
    spec = merge_spec(origin, base, 1, 2)
    with _sources(tmp_path).open(document, spec) as repository:
        assert repository.scratch.sources == [clone]
    assert not list(tmp_path.rglob("ran"))


def test_a_whole_repository_has_no_promisor(tmp_path: Path) -> None:
    origin, _ = _stack(tmp_path / "origin.git")
    git(origin.path, "remote", "add", "origin", "file:///nowhere")
    git(origin.path, "config", "remote.origin.promisor", "true")
    assert promisors(origin.path) == []
