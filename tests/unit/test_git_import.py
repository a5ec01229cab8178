"""From git trees to store trees: what is kept, what is refused."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.git.importer import import_tree
from reprobuild.adapters.git.objects import parse_tree
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.tree import Directory, File, Symlink
from reprobuild.errors import ReprobuildError
from support.gitkit import Origin, bulk_commit, git

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin.make(tmp_path / "origin.git")


def test_everything_that_a_tree_can_hold(origin: Origin) -> None:
    big = bytes(range(256)) * 9000
    commit = origin.commit(
        {
            "plain": "plain\n",
            "run.sh": (0o100755, b"#!/bin/sh\n"),
            "also-plain": (0o100664, b"plain\n"),
            "link": (0o120000, b"dir/../plain"),
            b"caf\xe9/\xff\xfe": "latin\n",
            "dir/deep/er/file": "deep\n",
            "empty": "",
            "big": big,
            "crlf.txt": "a\r\nb\r\n",
            ".gitattributes": "* text=auto eol=lf\n*.bin filter=lfs\n",
            "model.bin": POINTER,
            "vendor/sub": (0o160000, b"1" * 40),
        }
    )
    store = MemoryStore()
    digest = import_tree([origin.path], origin.tree(commit), store)
    root = store.tree(digest)
    plain = File(Digest.of(b"plain\n"), 6)
    assert root.get(b"plain") == plain
    assert root.get(b"also-plain") == plain
    assert root.get(b"run.sh") == File(Digest.of(b"#!/bin/sh\n"), 10, executable=True)
    assert root.get(b"link") == Symlink(b"dir/../plain")
    assert root.get(b"empty") == File(Digest.of(b""), 0)
    assert root.get(b"crlf.txt") == File(Digest.of(b"a\r\nb\r\n"), 6)  # no eol conversion
    assert root.get(b"model.bin") == File(Digest.of(POINTER.encode()), len(POINTER))
    assert store.open_blob(Digest.of(big)).read() == big
    odd = root.get(b"caf\xe9")
    assert isinstance(odd, Directory)
    assert store.tree(odd.digest).get(b"\xff\xfe") == File(Digest.of(b"latin\n"), 6)
    vendor = root.get(b"vendor")
    assert isinstance(vendor, Directory)
    sub = store.tree(vendor.digest).get(b"sub")
    assert isinstance(sub, Directory)
    assert store.tree(sub.digest).entries == ()


def test_one_content_with_two_modes_is_two_files(origin: Origin) -> None:
    commit = origin.commit({"a": "same\n", "b": (0o100755, b"same\n"), "c/a": "same\n"})
    store = MemoryStore()
    root = store.tree(import_tree([origin.path], origin.tree(commit), store))
    a, b = root.get(b"a"), root.get(b"b")
    assert isinstance(a, File) and isinstance(b, File)
    assert (a.executable, b.executable) == (False, True)


def test_many_files_are_read_through_one_pipe(origin: Origin) -> None:
    files = {b"d%d/f%d" % (n % 7, n): ("100644", b"%d\n" % n * (n % 50)) for n in range(1500)}
    commit = origin.bulk(bulk_commit("refs/heads/main", 1, files))["refs/heads/main"]
    store = MemoryStore()
    root = store.tree(import_tree([origin.path], origin.tree(commit), store))
    assert len(root.entries) == 7
    digest = Digest.of(b"1499\n" * 49)
    assert store.open_blob(digest).read() == b"1499\n" * 49


def _object(origin: Origin, oid: GitOid) -> Path:
    return origin.path / "objects" / oid.hex[:2] / oid.hex[2:]


def test_a_missing_blob_is_named_with_its_path(origin: Origin) -> None:
    commit = origin.commit({"dir/a": "a\n", "dir/b": "b\n"})
    blob = GitOid.parse(origin.blob(b"b\n"))
    _object(origin, blob).unlink()
    with pytest.raises(ReprobuildError) as caught:
        import_tree([origin.path], origin.tree(commit), MemoryStore())
    assert caught.value.code == "E-GIT-MISSING-OBJECT"
    assert caught.value.facts["path"] == "dir/b"
    assert caught.value.facts["object"] == blob.hex


def test_a_missing_tree_is_named_with_its_path(origin: Origin) -> None:
    commit = origin.commit({"dir/a": "a\n"})
    tree = GitOid.parse(git(origin.path, "rev-parse", f"{commit}:dir"))
    _object(origin, tree).unlink()
    with pytest.raises(ReprobuildError) as caught:
        import_tree([origin.path], origin.tree(commit), MemoryStore())
    assert caught.value.facts["path"] == "dir/"


@pytest.mark.parametrize("size", [5, 4, 6])
def test_an_object_with_other_content_is_refused(origin: Origin, size: int) -> None:
    commit = origin.commit({"a": "true\n"})
    place = _object(origin, GitOid.parse(origin.blob(b"true\n")))
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"blob %d\0evil\n" % size))
    store = MemoryStore()
    with pytest.raises(ReprobuildError) as caught:
        import_tree([origin.path], origin.tree(commit), store)
    assert caught.value.code in ("E-GIT-OBJECT", "E-GIT-MISSING-OBJECT")
    assert not store.trees


@pytest.mark.parametrize("name", [b"..", b".", b".git", b".GIT", b"a/b", b""])
def test_names_that_could_leave_the_tree_are_refused(name: bytes) -> None:
    with pytest.raises(ReprobuildError) as caught:
        parse_tree(b"100644 " + name + b"\0" + b"x" * 20, 20)
    assert caught.value.code == "E-GIT-OBJECT"


@pytest.mark.parametrize(
    "data", [b"100644 a\0short", b"100644", b"1006449999 a\0" + b"x" * 20, b"zz a\0" + b"x" * 20]
)
def test_malformed_trees_are_refused(data: bytes) -> None:
    with pytest.raises(ReprobuildError) as caught:
        parse_tree(data, 20)
    assert caught.value.code == "E-GIT-OBJECT"


def test_a_hand_made_tree_with_one_name_twice(origin: Origin, tmp_path: Path) -> None:
    blob = bytes.fromhex(origin.blob(b"x"))
    raw = b"100644 a\0" + blob + b"100644 a\0" + blob
    made = git(origin.path, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=raw)
    with pytest.raises(ReprobuildError, match="names one entry twice"):
        import_tree([origin.path], GitOid.parse(made), MemoryStore())


def test_a_commit_is_no_tree(origin: Origin) -> None:
    commit = origin.commit({"a": "a\n"})
    with pytest.raises(ReprobuildError, match="is a commit, not a tree"):
        import_tree([origin.path], commit, MemoryStore())


def test_directories_without_end_are_refused(origin: Origin) -> None:
    blob = bytes.fromhex(origin.blob(b"x"))
    raw = b"100644 a\0" + blob
    tree = ""
    for _ in range(320):
        tree = git(origin.path, "hash-object", "-t", "tree", "-w", "--stdin", stdin=raw)
        raw = b"40000 d\0" + bytes.fromhex(tree)
    with pytest.raises(ReprobuildError, match="nested deeper"):
        import_tree([origin.path], GitOid.parse(tree), MemoryStore())
