"""What `lock` says of places that hold no git repository, and of repositories that are hostile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cliin import Said, cli
from support.gitkit import Origin, git


def project(path: Path, url: str, stated: bool = False) -> Callable[..., Said]:
    """A flake over a repository, with `stated` commits or refs; what runs the command in it."""
    rev = f'rev = "{"4" * 40}"\n' if stated else ""
    head = f'number = 1, head = "{"5" * 40}"' if stated else "number = 1"
    (path / "derivations").mkdir(parents=True)
    (path / "derivations" / "lib.toml").write_text('input = "lib"\nresult = "source"\n')
    (path / "flake-like.toml").write_text(
        'format = 0\ndefault = "rel"\n'
        f'[inputs.lib]\nkind = "git"\nurl = "{url}"\nref = "refs/heads/main"\n{rev}'
        '[outputs.rel]\ncomponents = ["lib"]\n'
        f'[outputs.rel.sources.lib]\ninput = "lib"\nheads = [{{ {head} }}]\n'
    )
    return lambda *argv: cli("-C", str(path), "--store", str(path.parent / "store"), *argv)


def absent(place: Path) -> None:
    pass


def closed(place: Path) -> None:
    place.mkdir()
    place.chmod(0)


@pytest.mark.parametrize(
    "make",
    [
        absent,
        Path.mkdir,
        lambda place: place.write_text("no repository\n"),
        lambda place: place.write_text("x" * 5000),
        lambda place: place.write_bytes(b"gitdir: " + bytes(100)),
        lambda place: place.write_text("gitdir: " + "y" * 3000),
        lambda place: place.symlink_to("/dev/zero"),
        lambda place: place.symlink_to(place),
        os.mkfifo,
        closed,
    ],
)
@pytest.mark.parametrize(
    ("scheme", "stated"), [("", False), ("file://", False), ("", True), ("file://", True)]
)
def test_a_place_without_a_repository_is_left_open(
    make: Callable[[Path], object], scheme: str, stated: bool, tmp_path: Path
) -> None:
    """As one that cannot be reached: what is wanted of it waits, and the words say why."""
    place = tmp_path / "place"
    make(place)
    run = project(tmp_path / "project", f"{scheme}{place}", stated)
    said = run("lock")
    assert said.status == 0, said
    assert f"there is no git repository at {scheme}{place}" in said.err
    assert "reached and does not have it" not in said.err
    for argv in (("lock", "--check"), ("realize", "rel")):
        later = run(*argv)
        assert later.status == 4
        assert "E-GIT-FETCH" in later.err and "does not have it" not in later.err


@pytest.mark.parametrize("name", [b"..", b".git"])
def test_a_hostile_tree_is_said_to_be_in_its_repository(name: bytes, tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    raw = b"100644 %b\0" % name + bytes.fromhex(origin.blob(b"x"))
    tree = git(origin.path, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=raw)
    head = git(origin.path, "commit-tree", tree, "-p", base.hex, "-m", "hostile")
    git(origin.path, "update-ref", "refs/pull/1/head", head)
    run = project(tmp_path / "project", str(origin.path))
    said = run("lock")
    assert said.status == 4, said
    assert f"error: {origin.path}: a tree object has an entry {name.decode()!r}" in said.err
    assert f"object: {tree}" in said.err
    assert "key: outputs.rel.sources.lib" in said.err
    assert f"git -C {origin.path} fsck" in said.err

    git(origin.path, "update-ref", "refs/heads/main", head)
    said = run("lock")
    assert said.status == 4 and "key: inputs.lib" in said.err, said
    assert f"error: {origin.path}: a tree object" in said.err
