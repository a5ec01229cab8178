"""Manifests, locks, contracts and repositories made to break out: refused, without a trace."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.git.cache import GitCache
from reprobuild.adapters.git.files import read_below
from reprobuild.core.integration.address import check_url
from reprobuild.core.integration.contract import parse_contract
from reprobuild.core.integration.manifest import parse_manifest
from reprobuild.core.integration.model import IntegrationSpec, check_ref
from reprobuild.core.integration.upstream import parse_lock
from reprobuild.core.redact import redact
from reprobuild.errors import ReprobuildError
from support.cliin import cli
from support.gitkit import Origin, git

HEAD = "a" * 40

BAD_URLS = [
    "--upload-pack=touch /tmp/pwned",
    "-c",
    "ext::sh -c touch% /tmp/pwned",
    "fd::17/foo",
    "https::https://example.org/x",
    "ssh://-oProxyCommand=touch/x",
    "ssh://user@-oProxyCommand=x/y",
    "git@-oProxyCommand=x:y",
    "https://example.org/\nx",
    "https://example.org/\x00",
    "https://example.org/a b",
    "file:///a\\b",
    "",
    "x" * 5000,
    "javascript:alert(1)",
    "C:\\repo",
    "http+unix://x",
]
GOOD_URLS = [
    "https://github.com/local-inference-lab/b12x.git",
    "https://user:secret@example.org/x.git",
    "ssh://git@example.org:22/x.git",
    "git@github.com:owner/name.git",
    "git://127.0.0.1:9418/x.git",
    "file:///srv/git/x.git",
    "/srv/git/x.git",
    "./x.git",
    "../x.git",
    "relative/x.git",
]
BAD_REFS = [
    "main",
    "--upload-pack=x",
    "refs/heads/../../x",
    "refs/heads/a b",
    "refs/heads/a\nb",
    "refs/heads/\x1b[31m",
    "refs/heads/a..b",
    "refs/heads/.hidden",
    "refs/heads/a.lock",
    "refs/heads/a@{1}",
    "refs/heads/a~1",
    "refs/heads/a^{}",
    "refs/heads/a:b",
    "refs/heads/*",
    "refs/heads/",
    "refs/heads//a",
    "+refs/heads/a",
    "refs/-x/y",
    "refs/heads/" + "x" * 5000,
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        check_url(url)
    assert caught.value.exit_status == 3
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("url", GOOD_URLS)
def test_addresses_that_are_taken(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize("ref", BAD_REFS)
def test_refs_that_are_refused(ref: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        check_ref(ref)
    assert caught.value.code == "E-REF"


def test_secrets_of_addresses_are_never_shown() -> None:
    text = "fatal: https://user:secret@example.org/x not found; https://token@h/y"
    assert redact(text) == "fatal: https://example.org/x not found; https://h/y"


def manifest(**more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "name": "x",
        "repository": "/nowhere.git",
        "base_ref": "refs/heads/main",
        "pull_requests": [{"number": 1, "head": HEAD}],
        **more,
    }


def integration_lock(**more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "name": "x",
        "base": {"repository": "/nowhere.git", "ref": "refs/heads/main", "commit": HEAD},
        "pull_requests": [{"number": 1, "head": HEAD, "disposition": "merged"}],
        "result": {"tree": HEAD, "patch_sha256": "0" * 64},
        **more,
    }


WRONG_HEADS: list[dict[str, Any]] = [
    {"number": 1, "head": "--upload-pack=x"},
    {"number": 1, "head": HEAD.upper()},
    {"number": 1, "head": "a" * 39},
    {"number": 1, "head": HEAD + "\n"},
    {"number": 1, "head": None},
    {"number": True, "head": HEAD},
    {"number": "1", "head": HEAD},
    {"number": 1.0, "head": HEAD},
    {"number": -1, "head": HEAD},
    {"number": 2**63, "head": HEAD},
    {"number": 1, "head": HEAD, "title": "x" * 10_000_000},
    {"number": 1, "head": HEAD, "title": "\x1b[2J"},
    {"number": 1, "head": HEAD, "title": ["x"]},
    {"number": 1, "head": HEAD, "commits": ["HEAD"]},
    {"number": 1, "head": HEAD, "commits": []},
    {"number": 1, "head": HEAD, "commits": "x"},
    {"number": 1, "head": HEAD, "ref": "refs/heads/../x"},
]
WRONG: list[dict[str, Any]] = [
    *({"pull_requests": [row]} for row in WRONG_HEADS),
    {"pull_requests": [{"number": 1, "head": HEAD}] * 2},
    {"pull_requests": {}},
    {"pull_requests": [[]]},
    {"pull_requests": None},
    {"schema_version": 2},
    {"schema_version": True},
    {"schema_version": "1"},
    {"name": 3},
    {"name": "x" * 10_000_000},
    {"composition_strategy": "octopus"},
    {"source_patches": [{"path": "../../etc/passwd", "sha256": "0" * 64}]},
    {"source_patches": [{"path": "/etc/passwd", "sha256": "0" * 64}]},
    {"source_patches": [{"path": "a/../../b", "sha256": "0" * 64}]},
    {"source_patches": [{"path": "a\nb", "sha256": "0" * 64}]},
    {"source_patches": [{"path": "", "sha256": "0" * 64}]},
    {"source_patches": [{"path": "a", "sha256": "0" * 63}]},
    {"source_patches": "x"},
]
WRONG_MANIFESTS: list[dict[str, Any]] = [
    *WRONG,
    *({"repository": url} for url in BAD_URLS),
    *({"base_ref": ref} for ref in BAD_REFS),
    {"base_ref": "refs/tags/x"},
    {"composition_strategy": "pinned_branch", "composition_ref": "refs/heads/x"},
    {"composition_ref": "refs/heads/x"},
    {"reviewed_exclusions": [{"number": 1, "head": HEAD, "disposition": "superseded",
                              "reason": "r"}]},
    {"reviewed_exclusions": [{"number": 2, "head": HEAD, "disposition": "", "reason": ""}]},
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(WRONG_MANIFESTS)))
def test_wrong_manifests_are_refused(index: int) -> None:
    data = json.dumps(manifest(**WRONG_MANIFESTS[index])).encode()
    with pytest.raises(ReprobuildError) as caught:
        parse_manifest(data, "m.json")
    assert caught.value.exit_status == 3
    assert len(caught.value.message) < 1000
    assert all(c.isprintable() for c in caught.value.message)


WRONG_LOCKS: list[dict[str, Any]] = [
    *WRONG,
    *({"base": {"repository": u, "ref": "refs/heads/m", "commit": HEAD}} for u in BAD_URLS),
    *({"base": {"repository": "/x", "ref": r, "commit": HEAD}} for r in BAD_REFS),
    {"base": None},
    {"result": {"tree": "HEAD", "patch_sha256": "0" * 64}},
    {"result": []},
    {"pull_requests": [{"number": 1, "head": HEAD, "disposition": "eaten"}]},
    {"composition_strategy": "pinned_branch", "composition": None},
]


@pytest.mark.parametrize("index", range(len(WRONG_LOCKS)))
def test_wrong_locks_are_refused(index: int) -> None:
    data = json.dumps(integration_lock(**WRONG_LOCKS[index])).encode()
    with pytest.raises(ReprobuildError) as caught:
        parse_lock(data, "l.json")
    assert caught.value.exit_status == 3
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": 1, "a": 2}',
        b'{"schema_version": NaN}',
        b'{"schema_version": 1e999}',
        b"null",
        b'"x"',
        b" " * (9 * 2**20),
        b'{"x": ' + b"9" * 10_000 + b"}",
    ],
)
def test_texts_that_are_no_documents(data: bytes) -> None:
    for parse in (parse_manifest, parse_lock):
        with pytest.raises(ReprobuildError) as caught:
            parse(data, "x.json")
        assert caught.value.exit_status == 3


CONTRACT = """\
A contract #1

https://github.com/owner/place

vLLM: dev/x

• A title vllm#1 at
  {head}

Integration tree:
{tree}
"""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no sections at all",
        "x" * 5_000_000,
        "t" * 10_000 + "\n\nvLLM: dev/x\n\n• T vllm#1 at\n  " + HEAD,
        CONTRACT.format(head="deadbeef", tree=HEAD),
        CONTRACT.format(head=HEAD, tree="HEAD"),
        CONTRACT.format(head=HEAD, tree="--upload-pack=x"),
        CONTRACT.format(head=HEAD, tree=HEAD).replace("dev/x", "dev/../x"),
        CONTRACT.format(head=HEAD, tree=HEAD).replace(
            "Integration", f"• Again vllm#1 at\n  {HEAD}\n\nIntegration"
        ),
        CONTRACT.format(head=HEAD, tree=HEAD) + "\nVLLM: other\n\n• T vllm#2 at\n  " + HEAD,
        CONTRACT.format(head=HEAD, tree=HEAD).replace("vllm#1", "vllm#99999999999999"),
    ],
)
def test_wrong_contracts_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ReprobuildError) as caught:
        parse_contract(text.encode(), "c.txt")
    assert caught.value.exit_status == 3
    path = tmp_path / "c.txt"
    path.write_text(text)
    home = tmp_path / "new"
    home.mkdir()
    assert cli("-C", str(home), "init", "--from-contract", str(path)).status == 3
    assert list(home.iterdir()) == []


def test_text_of_a_contract_stays_text_in_the_flake(tmp_path: Path) -> None:
    import tomllib

    title = 'T" ]\\ [inputs.evil] # {x} \'\'\' """'
    path = tmp_path / "c.txt"
    path.write_text(CONTRACT.format(head=HEAD, tree=HEAD).replace("A title", title))
    home = tmp_path / "new"
    home.mkdir()
    assert cli("-C", str(home), "init", "--from-contract", str(path)).status == 0
    flake = tomllib.loads((home / "flake-like.toml").read_text())
    (output,) = flake["outputs"].values()
    assert output["sources"]["vllm"]["heads"][0]["title"] == title
    assert list(flake["inputs"]) == ["vllm"]


def test_a_symlinked_patch_and_a_symlinked_directory_are_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "real").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "p").write_text("secret")
    (home / "link").symlink_to(tmp_path / "outside" / "p")
    (home / "dir").symlink_to(tmp_path / "outside")
    (home / "real" / "p").write_text("fine")
    os.mkfifo(home / "fifo")
    assert read_below(home, "real/p") == b"fine"
    for path in ("link", "dir/p", "fifo", "gone", "real"):
        with pytest.raises(ReprobuildError) as caught:
            read_below(home, path)
        assert caught.value.code == "E-PATCH"
    with pytest.raises(ReprobuildError):
        read_below(home, "real/../real/p")
    with pytest.raises(ReprobuildError, match="longer than"):
        read_below(home, "real/p", limit=3)


def test_compose_refuses_all_of_them_without_a_trace(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    secret = tmp_path / "secret.patch"
    secret.write_text("x\n")
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    home = tmp_path / "home"
    home.mkdir()
    (home / "link.patch").symlink_to(secret)
    rows: list[dict[str, Any]] = [
        {"repository": "ext::sh -c touch% " + str(tmp_path / "pwned")},
        {"repository": f"--upload-pack=touch {tmp_path}/pwned"},
        {"base_ref": f"refs/heads/main --upload-pack=touch${{IFS}}{tmp_path}/pwned"},
        {"source_patches": [{"path": "../secret.patch", "sha256": digest}]},
        {"source_patches": [{"path": "link.patch", "sha256": digest}]},
    ]
    for row in rows:
        path = home / "m.json"
        path.write_text(json.dumps(manifest(repository=str(origin.path), pull_requests=[]) | row))
        said = cli("compose", str(path), "--output-dir", str(tmp_path / "out"))
        assert said.status == 2, row
        assert not (tmp_path / "pwned").exists()
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    assert git(origin.path, "rev-parse", "refs/heads/main") == base.hex


def test_integrate_refuses_with_the_status_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "l.json"
    path.write_text(json.dumps(integration_lock(base={"repository": "ext::x", "ref": "refs/x",
                                                      "commit": HEAD})))  # fmt: skip
    assert cli("integrate", "--lock", str(path), "--repository", str(tmp_path)).status == 3
    path.write_text(json.dumps(integration_lock()))
    said = cli("integrate", "--lock", str(path), "--repository", str(tmp_path / "gone"))
    assert said.status == 4


def test_a_repository_directory_that_looks_like_an_option(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "--upload-pack=x")
    base = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    cache = GitCache(tmp_path / "cache", base=tmp_path)
    assert cache.resolve(str(origin.path), ["refs/heads/main"]) == {"refs/heads/main": base}


def test_a_ref_that_points_to_itself_or_to_nonsense(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    origin.commit({"a": "a\n"}, ref="refs/heads/main")
    (origin.path / "refs/heads/loop").write_text("ref: refs/heads/loop2\n")
    (origin.path / "refs/heads/loop2").write_text("ref: refs/heads/loop\n")
    (origin.path / "refs/heads/junk").write_text("../../etc/passwd\n")
    (origin.path / "refs/heads/blob").write_text(origin.blob(b"x") + "\n")
    cache = GitCache(tmp_path / "cache", base=tmp_path)
    for name in ("loop", "junk", "blob"):
        try:
            found = cache.resolve(str(origin.path), [f"refs/heads/{name}"])
        except ReprobuildError as error:
            assert error.exit_status in (3, 4)
        else:
            assert found == {}


def test_an_origin_document_is_judged_again_before_anything_is_fetched() -> None:
    for document in (
        {"strategy": "merge", "base": "HEAD"},
        {"strategy": "merge", "base": HEAD, "heads": [{"number": 0, "head": HEAD}]},
        {"strategy": "merge", "base": HEAD, "patches": [{"path": "../x", "sha256": "0" * 64}]},
        {"strategy": "merge", "base": HEAD, "heads": [{"number": 1, "head": HEAD}] * 2},
        {"strategy": "x", "base": HEAD},
        {"base": HEAD, "heads": "x"},
        {"base": HEAD, "composition": HEAD},
        {},
    ):
        with pytest.raises(ReprobuildError) as caught:
            IntegrationSpec.parse(document)  # type: ignore[arg-type]
        assert caught.value.exit_status == 3
