"""Repositories of every kind, attributes as in a checkout, configuration that must not matter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from reprobuild.adapters.git.cache import GitCache
from reprobuild.adapters.git.plumbing import git_directory
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.strategies import integrate
from reprobuild.errors import ReprobuildError
from support.gitkit import (
    Composition,
    Origin,
    checkout_composition,
    git,
    git_daemon,
    merge_spec,
    opened,
)

LINES = "".join(f"line {n}\n" for n in range(1, 21))

# Every one of these moves what git writes when a user, a system or a repository sets it.
MISCHIEF = {
    "core.compression": "9",
    "core.autocrlf": "true",
    "core.attributesFile": "ATTRIBUTES",
    "core.abbrev": "6",
    "core.quotePath": "false",
    "core.hooksPath": "HOOKS",
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "diff.renames": "false",
    "diff.algorithm": "patience",
    "diff.context": "9",
    "diff.interHunkContext": "7",
    "diff.orderFile": "ORDER",
    "diff.external": "/bin/false",
    "diff.suppressBlankEmpty": "true",
    "color.ui": "always",
    "merge.conflictStyle": "diff3",
    "merge.renames": "false",
    "merge.directoryRenames": "true",
    "merge.renormalize": "true",
    "merge.default": "union",
    "apply.whitespace": "fix",
    "commit.gpgSign": "true",
    "i18n.commitEncoding": "latin1",
}


def _story(origin: Origin) -> GitOid:
    base = origin.commit(
        {"old/a.py": LINES, "old/b.py": LINES, "ä ö.txt": LINES, "bin": bytes(range(256)) * 9},
        ref="refs/heads/main",
    )
    moved = LINES.replace("line 9\n", "line nine\n")
    origin.pull(1, {"old/a.py": None, "new/a.py": moved, "old/b.py": None, "new/b.py": LINES},
                [base])  # fmt: skip
    origin.pull(2, {"old/a.py": LINES.replace("line 1\n", "line one\n")}, [base])
    origin.pull(3, {"bin": bytes(range(255, -1, -1)) * 9, "ä ö.txt": LINES + "\n\n"}, [base])
    return base


def test_no_configuration_can_move_the_answer(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = _story(origin)
    spec = merge_spec(origin, base, 1, 2, 3)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    (tmp_path / "attributes").write_text("* -diff\n*.py merge=binary\n")
    (tmp_path / "order").write_text("old/*\nbin\n")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction", "pre-merge-commit", "post-merge"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (hooks / name).chmod(0o755)
    lines = []
    for key, value in MISCHIEF.items():
        section, _, name = key.partition(".")
        text = value.replace("ATTRIBUTES", str(tmp_path / "attributes"))
        text = text.replace("ORDER", str(tmp_path / "order")).replace("HOOKS", str(hooks))
        lines.append(f"[{section}]\n\t{name} = {text}\n")
    config = tmp_path / "home" / ".gitconfig"
    config.parent.mkdir()
    config.write_text("".join(lines))
    with (origin.path / "config").open("a") as file:
        file.write("".join(lines))
    (origin.path / "info" / "attributes").write_text("* -diff merge=union\n")
    shutil.copytree(hooks, origin.path / "hooks", dirs_exist_ok=True)
    program = (
        "import sys, json\n"
        "from pathlib import Path\n"
        "from reprobuild.adapters.git.scratch import Scratch\n"
        "from reprobuild.adapters.git.backend import GitRepository\n"
        "from reprobuild.core.integration.model import IntegrationSpec\n"
        "from reprobuild.core.integration.strategies import integrate\n"
        "spec = IntegrationSpec.parse(json.loads(sys.argv[2]))\n"
        "with Scratch([Path(sys.argv[1])]) as s:\n"
        "    done = integrate(GitRepository(s), spec)\n"
        "print(done.tree, done.patch_sha256.hex, done.patch_digest)\n"
    )
    import json

    argv = [sys.executable, "-c", program, str(origin.path), json.dumps(spec.document())]
    answers = set()
    mischief = {
        "HOME": str(config.parent),
        "XDG_CONFIG_HOME": str(config.parent),
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_CONFIG_SYSTEM": str(config),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "diff.noprefix",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_PARAMETERS": "'diff.context=9'",
        "GIT_EXTERNAL_DIFF": "/bin/false",
        "GIT_DIFF_OPTS": "-u9",
        "GIT_DIR": str(tmp_path),
        "GIT_WORK_TREE": "/",
        "GIT_INDEX_FILE": "/nonexistent",
        "GIT_OBJECT_DIRECTORY": "/nonexistent",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TRACE": "1",
        "LC_ALL": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
    }
    for env in ({}, mischief):
        done = subprocess.run(
            argv, capture_output=True, env={**os.environ, **env}, check=True, cwd="/", text=True
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    assert answers.pop().split()[:2] == [expected.tree, expected.patch_sha256]
    assert not (tmp_path / "ran").exists()


def test_replace_refs_and_grafts_of_the_repository_are_not_heard(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = _story(origin)
    spec = merge_spec(origin, base, 1, 2)
    with opened(origin.path) as repository:
        before = integrate(repository, spec)
    other = origin.commit({"evil": "x\n"})
    git(origin.path, "replace", "-f", base.hex, other.hex)
    (origin.path / "info" / "grafts").write_text(f"{origin.pulls[1]} {other}\n")
    with opened(origin.path) as repository:
        assert integrate(repository, spec) == before


@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        (".gitattributes", "log.txt"),
        ("deep/.gitattributes", "deep/log.txt"),
    ],
)
def test_merge_union_applies_as_in_a_checkout(tmp_path: Path, attributes: str, path: str) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({attributes: "*.txt merge=union\n", path: "start\n"})
    git(origin.path, "update-ref", "refs/heads/main", base.hex)
    origin.pull(1, {path: "start\none\n"}, [base])
    origin.pull(2, {path: "start\ntwo\n"}, [base])
    spec = merge_spec(origin, base, 1, 2)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    assert done.tree.hex == expected.tree


def test_attributes_are_those_of_the_tip_and_follow_it(tmp_path: Path) -> None:
    """A head brings the attribute; the next merge hears it, the one before it did not."""
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a.txt": "start\n", "b.txt": "start\n"}, ref="refs/heads/main")
    origin.pull(1, {"a.txt": "start\none\n"}, [base])
    origin.pull(2, {".gitattributes": "*.txt merge=union\n"}, [base])
    origin.pull(3, {"a.txt": "start\nthree\n"}, [base])
    spec = merge_spec(origin, base, 1, 2, 3)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    with opened(origin.path) as repository:
        assert integrate(repository, spec).tree.hex == expected.tree
        with pytest.raises(ReprobuildError, match="PR #3 conflicts"):
            integrate(repository, merge_spec(origin, base, 1, 3, 2))
    conflict = checkout_composition(
        origin.path, merge_spec(origin, base, 1, 3, 2), tmp_path / "again"
    )
    assert conflict == 3


def test_diff_attributes_shape_the_published_patch_only(tmp_path: Path) -> None:
    code = "class A:\n    def f(self):\n" + "".join(f"        x{n} = {n}\n" for n in range(30))
    text = "".join(f"{n}\n" for n in range(60))
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit(
        {".gitattributes": "*.py diff=python\n*.dat -diff\n*.crlf text eol=crlf\n",
         "m.py": code, "t.dat": text, "w.crlf": text},
        ref="refs/heads/main",
    )  # fmt: skip
    origin.pull(
        1,
        {
            "m.py": code.replace("x25 = 25", "x25 = 0"),
            "t.dat": text + "z\n",
            "w.crlf": text + "w\n",
        },
        [base],
    )
    spec = merge_spec(origin, base, 1)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    assert b"def f(self):" in expected.patch and b"GIT binary patch" in expected.patch
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
        bare = git(origin.path, "diff", "--binary", "--full-index", base.hex, origin.pulls[1].hex)
    assert done.patch_sha256.hex == expected.patch_sha256
    assert bare.encode() + b"\n" != expected.patch  # what a bare repository would say


def test_links_and_odd_places_called_gitattributes_are_harmless(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    secret = tmp_path / "secret"
    secret.write_text("* merge=union\n")
    base = origin.commit(
        {".gitattributes": (0o120000, str(secret).encode()), "d/.gitattributes/x": "y\n",
         "a.txt": "start\n"}
    )  # fmt: skip
    origin.pull(1, {"a.txt": "start\none\n"}, [base])
    origin.pull(2, {"a.txt": "start\ntwo\n"}, [base])
    with opened(origin.path) as repository, pytest.raises(ReprobuildError, match="PR #2 conf"):
        integrate(repository, merge_spec(origin, base, 1, 2))


def test_sha256_repositories(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git", sha256=True)
    base = _story(origin)
    spec = merge_spec(origin, base, 1, 2, 3)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    with opened(origin.path, sha256=True) as repository:
        done = integrate(repository, spec)
    assert (done.tree.hex, done.patch_sha256.hex) == (expected.tree, expected.patch_sha256)
    assert len(done.tree.hex) == 64


def test_shallow_repositories(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    old = origin.commit({"gone": "x\n"})
    start = origin.commit({"gone": None, "a": LINES}, [old])
    base = origin.commit({"b": "b\n"}, [start], ref="refs/heads/main")
    origin.pull(1, {"a": LINES.replace("line 1\n", "one\n")}, [base])
    shallow = tmp_path / "shallow.git"
    git(tmp_path, "init", "--quiet", "--bare", str(shallow))
    git(shallow, "fetch", "--quiet", "--depth=2", f"file://{origin.path}",
        "refs/heads/main:refs/heads/main", "refs/pull/1/head:refs/pull/1/head")  # fmt: skip
    assert (shallow / "shallow").is_file()
    spec = merge_spec(origin, base, 1)
    with opened(origin.path) as repository:
        whole = integrate(repository, spec)
    with opened(shallow) as repository:
        assert integrate(repository, spec) == whole


def test_old_blobs_that_are_missing_are_not_asked_for(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    big = b"big" * 100_000
    old = origin.commit({"big": big, "a": LINES})
    base = origin.commit({"big": None}, [old], ref="refs/heads/main")
    origin.pull(1, {"a": LINES.replace("line 1\n", "one\n")}, [base])
    _remove(origin, GitOid.parse(origin.blob(big)))
    with opened(origin.path) as repository:
        done = integrate(repository, merge_spec(origin, base, 1))
    assert done.heads[0].disposition == "merged"


def _remove(origin: Origin, oid: GitOid) -> None:
    (origin.path / "objects" / oid.hex[:2] / oid.hex[2:]).unlink()


def test_a_blob_that_is_needed_and_missing_is_named(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": LINES})
    origin.pull(1, {"a": LINES.replace("line 1\n", "one\n")}, [base])
    origin.pull(2, {"a": LINES.replace("line 20\n", "twenty\n")}, [base])
    _remove(origin, GitOid.parse(origin.blob(LINES.encode())))
    blob = GitOid.parse(git(tmp_path, "hash-object", "--stdin", stdin=LINES.encode()))
    _remove_if_there(origin, blob)
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, merge_spec(origin, base, 1, 2))
    assert caught.value.code == "E-GIT-MISSING-OBJECT"
    assert blob.hex in caught.value.message


def _remove_if_there(origin: Origin, oid: GitOid) -> None:
    (origin.path / "objects" / oid.hex[:2] / oid.hex[2:]).unlink(missing_ok=True)


def test_a_damaged_object_is_noticed_on_the_way_out(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": LINES})
    oid = GitOid.parse(origin.blob(b"true\n"))
    place = origin.path / "objects" / oid.hex[:2] / oid.hex[2:]
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"blob 5\0evil\n"))
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        assert repository.has_commit(base)
        repository.read_blob(oid)
    assert caught.value.code == "E-GIT-OBJECT"


@pytest.mark.parametrize("kind", ["blob", "tree", "tag"])
def test_a_head_that_is_no_commit_is_refused(tmp_path: Path, kind: str) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": LINES}, ref="refs/heads/main")
    git(origin.path, "tag", "-a", "-m", "a tag", "named", base.hex)
    others = {
        "blob": origin.blob(b"true\n"),
        "tree": origin.tree(base).hex,
        "tag": git(origin.path, "rev-parse", "refs/tags/named"),
    }
    origin.pulls[1] = GitOid.parse(others[kind])
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, merge_spec(origin, base, 1))
    assert caught.value.code == "E-GIT-OBJECT"
    assert f"is a {kind}, not a commit" in caught.value.message


def test_git_directories_of_every_form(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    origin.commit({"a": "a\n"}, ref="refs/heads/main")
    git(tmp_path, "clone", "--quiet", str(origin.path), "clone")
    git(tmp_path / "clone", "worktree", "add", "--quiet", "../linked", "-b", "side")
    assert git_directory(origin.path) == origin.path
    assert git_directory(tmp_path / "clone") == tmp_path / "clone" / ".git"
    assert git_directory(tmp_path / "linked") == tmp_path / "clone" / ".git"
    with pytest.raises(ReprobuildError, match="is no git repository"):
        git_directory(tmp_path)


def test_partial_clones_bring_what_a_merge_needs(tmp_path: Path) -> None:
    """A remote that is asked for commits without blobs, then for the blobs a merge reads."""
    from fakes.memory_store import MemoryStore
    from reprobuild.adapters.git.fetcher import GitFetcher
    from reprobuild.adapters.git.sources import GitSources
    from reprobuild.core.derivation import FixedOutput
    from reprobuild.core.encoding import Value
    from reprobuild.ports import NullReporter

    origin = Origin.make(tmp_path / "origin.git")
    big = b"big" * 100_000
    old = origin.commit({"big": big, "a": LINES})
    base = origin.commit({"big": None}, [old], ref="refs/heads/main")
    origin.pull(1, {"a": LINES.replace("line 1\n", "one\n")}, [base])
    origin.pull(2, {"a": LINES.replace("line 20\n", "twenty\n"), "n": "n\n"}, [base])
    spec = merge_spec(origin, base, 1, 2)
    with opened(origin.path) as repository:
        expected = integrate(repository, spec)
    git(origin.path, "config", "uploadpack.allowFilter", "true")
    _remove(origin, GitOid.parse(git(tmp_path, "hash-object", "--stdin", stdin=big)))
    with git_daemon(tmp_path) as daemon:
        url = daemon.url("origin.git")
        cache = GitCache(tmp_path / "cache", base=tmp_path)
        store = MemoryStore()
        fetcher = GitFetcher(GitSources(cache, tmp_path / "fixtures", tmp_path), store)
        document: dict[str, Value] = {"kind": "git", "url": url, **spec.document()}
        fixed = FixedOutput("git-tree", oid=expected.tree)
        first = fetcher.fetch(fixed, document, NullReporter())
    offline = GitCache(tmp_path / "cache", base=tmp_path, offline=True)
    other = MemoryStore()
    again = GitFetcher(GitSources(offline, tmp_path / "fixtures", tmp_path), other)
    assert again.fetch(fixed, document, NullReporter()) == first
    assert store.contains(first) and other.contains(first)
    cached = cache.path(url)
    kinds = git(cached, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
    assert kinds.split().count("blob") < 8  # not the history's


@pytest.mark.parametrize(
    "name", [b'a\n"b', b'"a"', b"#a", b"a\\nb", b'\n\\"\xff', b" a ", b"\xc3\xbc"]
)
def test_a_repository_may_have_any_name(name: bytes, tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(name)
    place.mkdir()
    origin = Origin.make(place / "origin.git")
    commit = origin.commit({"a": "content\n"}, ref="refs/heads/main")
    with Scratch([origin.path]) as scratch:
        assert scratch.reader.has(commit)
