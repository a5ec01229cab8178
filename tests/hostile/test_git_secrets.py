"""Passwords in addresses of git repositories: refused where they would be published, kept out of
what the cache writes where they may stand, and said by no message."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.git.cache import GitCache
from reprobuild.adapters.toml.load import load_project
from reprobuild.core.integration.address import check_stated, check_url
from reprobuild.core.integration.contract import parse_contract
from reprobuild.core.integration.imported import from_contract
from reprobuild.core.integration.manifest import parse_manifest
from reprobuild.core.integration.upstream import parse_lock
from reprobuild.errors import ReprobuildError
from support.cliin import cli
from support.gitkit import Origin, git
from support.webserver import WebServer, web_server

HEAD = "a" * 40
SECRET = "Hunter2"
REFUSED = [
    f"https://user:{SECRET}@example.org/app.git",
    f"https://{SECRET}@example.org/app.git",
    f"http://user:{SECRET}@example.org/app.git",
    f"git://user:{SECRET}@example.org/app.git",
    f"file://user:{SECRET}@/srv/app.git",
    f"ftp://user:{SECRET}@example.org/app.git",
    f"ssh://git:{SECRET}@example.org/app.git",
    f"ssh://git%3A{SECRET}@example.org/app.git",
    f"https://user:a/{SECRET}@example.org/app.git",
    f"git:{SECRET}@example.org:app.git",
    f"https://{'u' * 200}:{SECRET}@example.org/app.git",
]
CONTRACT = f"A contract #1\n\nvLLM: dev/x\n\n• A title vllm#1 at\n  {HEAD}\n"


def silent(error: ReprobuildError) -> ReprobuildError:
    """The error, which nowhere says the secret."""
    assert SECRET not in json.dumps([error.message, error.hint, error.facts], default=str)
    return error


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_with_a_secret_is_stated_nowhere(url: str, tmp_path: Path) -> None:
    with pytest.raises(ReprobuildError) as caught:
        check_stated(url)
    assert silent(caught.value).code == "E-GIT-URL"

    (tmp_path / "flake-like.toml").write_text(
        f'format = 0\n[inputs.x]\nkind = "git"\nurl = "{url}"\nref = "refs/heads/main"\n'
    )
    with pytest.raises(ReprobuildError) as caught:
        load_project(tmp_path)
    assert silent(caught.value).facts["key"] == "inputs.x.url"

    pulls = [{"number": 1, "head": HEAD, "disposition": "merged"}]
    manifest = {
        "schema_version": 1, "name": "x", "repository": url, "base_ref": "refs/heads/main",
        "pull_requests": pulls,
    }  # fmt: skip
    with pytest.raises(ReprobuildError) as caught:
        parse_manifest(json.dumps(manifest).encode(), "m.json")
    assert silent(caught.value).code == "E-MANIFEST"
    lock = {
        "schema_version": 1, "name": "x", "pull_requests": pulls,
        "base": {"repository": url, "ref": "refs/heads/main", "commit": HEAD},
        "result": {"tree": HEAD, "patch_sha256": "0" * 64},
    }  # fmt: skip
    with pytest.raises(ReprobuildError) as caught:
        parse_lock(json.dumps(lock).encode(), "l.json")
    assert silent(caught.value).code == "E-UPSTREAM-LOCK"
    with pytest.raises(ReprobuildError) as caught:
        from_contract(parse_contract(CONTRACT.encode(), "c.md"), "c.md", url)
    assert silent(caught.value).code == "E-GIT-URL"


@pytest.mark.parametrize("scheme", ["https", "http", "ftp"])
def test_the_address_of_a_file_holds_no_secret(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "flake-like.toml").write_text(
        f'format = 0\n[inputs.x]\nkind = "url"\nurl = "{scheme}://u:{SECRET}@example.org/x.tgz"\n'
    )
    with pytest.raises(ReprobuildError) as caught:
        load_project(tmp_path)
    assert silent(caught.value).facts["key"] == "inputs.x.url"


def test_a_forge_with_a_secret_gives_no_flake(tmp_path: Path) -> None:
    (tmp_path / "c.md").write_text(CONTRACT)
    home = tmp_path / "new"
    home.mkdir()
    argv = ["-C", str(home), "init", "--from-contract", str(tmp_path / "c.md"), "--forge"]
    said = cli(*argv, f"https://u:{SECRET}@example.org/o")
    assert said.status == 3
    assert SECRET not in said.out + said.err
    assert "credential helper" in said.err
    assert list(home.iterdir()) == []
    assert cli(*argv, "https://example.org/o").status == 0


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/app.git",
        "https://example.org:8443/a@b.git",
        "ssh://git@example.org:22/x.git",
        "git@github.com:owner/name.git",
        "file:///srv/x@y.git",
        "/srv/a:b@c.git",
    ],
)
def test_addresses_without_a_secret_stay(url: str) -> None:
    assert check_stated(url) == check_url(url) == url


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Origin, WebServer]]:
    """A repository behind a password, served as plain files."""
    origin = Origin.make(tmp_path / "srv" / "app.git")
    origin.commit({"a": "a\n"}, ref="refs/heads/main")
    git(origin.path, "update-server-info")
    word = base64.b64encode(f"user:{SECRET}".encode()).decode()
    with web_server() as web:
        for path in origin.path.rglob("*"):
            if path.is_file():
                name = "/app.git/" + path.relative_to(origin.path).as_posix()
                for query in ("", "?service=git-upload-pack"):
                    web.put(name + query, path.read_bytes(), authorization=f"Basic {word}")
        yield origin, web


def test_the_password_of_a_mirror_is_used_and_not_kept(
    guarded: tuple[Origin, WebServer], tmp_path: Path
) -> None:
    origin, web = guarded
    url = "https://example.invalid/app.git"
    mirror = f"http://user:{SECRET}@{web.url.removeprefix('http://')}/app.git"
    cache = GitCache(tmp_path / "cache", rewrite=lambda u: [mirror], base=tmp_path)
    refs = cache.resolve(url, ["refs/heads/main"])
    (head,) = refs.values()
    assert head.hex == git(origin.path, "rev-parse", "main")
    cache.locate(url, [head], ["refs/heads/main"])
    assert git(cache.path(url), "cat-file", "-t", head.hex) == "commit"
    kept = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert kept
    assert [p for p in kept if SECRET.encode() in p.read_bytes()] == []
