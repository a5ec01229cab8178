"""Fixtures: the same objects anywhere, and every mistake named with file and line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprobuild.adapters.git.fixture import fixture_digest, make_fixture, read_fixture
from reprobuild.errors import ReprobuildError
from support.gitkit import git

TEXT = """\
format = 0

[[commit]]
id = "base"
refs = ["refs/heads/main", "refs/pull/1/head"]
message = "Start\\n\\nWith a body"
author = "Änne <aenne@example.org>"
date = 2026-01-02T03:04:05+02:00
files = "base"
executable = ["run.sh"]
symlinks = { "link" = "dir/a" }

[[commit]]
id = "next"
parents = ["base"]
refs = ["refs/pull/2/head"]
message = "Next"
files = "next"
remove = ["dir"]
submodules = { "vendor/x" = "1111111111111111111111111111111111111111" }

[[commit]]
id = "merge"
parents = ["base", "next"]
refs = ["refs/heads/merged"]
message = "Merge"
"""


@pytest.fixture
def fixture(tmp_path: Path) -> Path:
    home = tmp_path / "fixture"
    (home / "base" / "dir").mkdir(parents=True)
    (home / "next").mkdir()
    (home / "repository.toml").write_text(TEXT)
    (home / "base" / "run.sh").write_text("#!/bin/sh\n")
    (home / "base" / "dir" / "a").write_bytes(b"a\r\n\0")
    (home / "base" / 'odd "name"').write_text("odd\n")
    (home / "next" / "b").write_text("")
    return home


def test_the_objects_are_these(fixture: Path, tmp_path: Path) -> None:
    refs = make_fixture(fixture, tmp_path / "made.git")
    assert {name: oid.hex for name, oid in refs.items()} == {
        "refs/heads/main": "4b60d3d1425b7e20777b6ee3052498d91894face",
        "refs/heads/merged": "9a5e338d555510f1f6af684fc084b82ced2b5eda",
        "refs/pull/1/head": "4b60d3d1425b7e20777b6ee3052498d91894face",
        "refs/pull/2/head": "5363eb512effaf2b8f273f4b147d4b0dc0fb7dc9",
    }
    made = tmp_path / "made.git"
    listing = git(made, "ls-tree", "-r", "refs/pull/2/head").splitlines()
    assert [row.split("\t")[1] for row in listing] == ["b", "link", '"odd \\"name\\""', "run.sh",
                                                       "vendor/x"]  # fmt: skip
    assert [row.split()[0] for row in listing] == ["100644", "120000", "100644", "100755", "160000"]
    assert git(made, "log", "-1", "--format=%an %ae %ad|%cn|%B", "refs/heads/main") == (
        "Änne aenne@example.org Fri Jan 2 01:04:05 2026 +0000|Fixture|Start\n\nWith a body"
    )
    assert git(made, "rev-parse", "refs/heads/merged^1", "refs/heads/merged^2").split() == [
        refs["refs/heads/main"].hex, refs["refs/pull/2/head"].hex,
    ]  # fmt: skip
    assert "reprobuild-fixture" not in git(made, "for-each-ref")


def test_neither_modes_nor_times_nor_umask_matter(fixture: Path, tmp_path: Path) -> None:
    first, digest = make_fixture(fixture, tmp_path / "a.git"), fixture_digest(fixture)
    for path in fixture.rglob("*"):
        if path.is_file():
            path.chmod(0o777)
            os.utime(path, (1, 1))
    old = os.umask(0o077)
    try:
        assert make_fixture(fixture, tmp_path / "b.git") == first
    finally:
        os.umask(old)
    assert fixture_digest(fixture) == digest
    assert make_fixture(fixture, tmp_path / "b.git") == first  # replaces what is there


def test_the_digest_moves_with_any_byte(fixture: Path) -> None:
    seen = {fixture_digest(fixture)}
    (fixture / "next" / "b").write_text("x")
    seen.add(fixture_digest(fixture))
    (fixture / "next" / "c").write_text("")
    seen.add(fixture_digest(fixture))
    (fixture / "repository.toml").write_text(TEXT + "\n")
    seen.add(fixture_digest(fixture))
    assert len(seen) == 4
    (fixture / "README").write_text("not taken by any commit\n")
    assert fixture_digest(fixture) in seen


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("format = 0", "format = 1"), None, "format must be 0"),
        (("format = 0", "format = 0\nsize = 3"), None, "unknown key 'size'"),
        (('id = "next"', 'id = "base"'), 14, "two commits are called 'base'"),
        (('id = "next"\n', ""), 13, "a commit needs an id"),
        (('parents = ["base"]', 'parents = ["nobody"]'), 15, "'nobody' is no earlier commit"),
        (('parents = ["base"]', "parents = 3"), 15, "parents must be a list of texts"),
        (('"refs/pull/2/head"', '"refs/heads/main"'), 16, "points to 'base' already"),
        (('"refs/pull/2/head"', '"--upload-pack=x"'), 16, "is no full ref name"),
        (('"refs/pull/2/head"', '"refs/reprobuild-fixture/1"'), 16, "is taken"),
        (('files = "next"', 'files = "../base"'), 18, "no path inside the repository"),
        (('files = "next"', 'files = "/etc"'), 18, "no path inside the repository"),
        (('files = "next"', 'files = "gone"'), 18, "'gone' is not there"),
        (('remove = ["dir"]', 'remove = ["a/.git/b"]'), 19, "no path inside the repository"),
        (('remove = ["dir"]', 'remove = ["a\\nb"]'), 19, "no path inside the repository"),
        (('["run.sh"]', '["gone.sh"]'), 10, "'gone.sh' is not among the commit's files"),
        (('"dir/a" }', '"" }'), 11, "needs a target"),
        (("1111111111111111111111111111111111111111", "master"), 20, "no full git object name"),
        (("Änne <aenne@example.org>", "nobody"), 7, "author must look like"),
        (("2026-01-02T03:04:05+02:00", "2026-01-02"), 8, "date must be a time with its zone"),
        (("2026-01-02T03:04:05+02:00", "1960-01-02T03:04:05Z"), 8, "date must be"),
        (('message = "Next"', 'massage = "Next"'), 17, "unknown key 'massage'"),
        (('message = "Next"', "message = 3"), 17, "message must be text"),
    ],
)
def test_mistakes_are_named_with_their_line(
    fixture: Path, tmp_path: Path, change: tuple[str, str], line: int | None, message: str
) -> None:
    assert change[0] in TEXT
    (fixture / "repository.toml").write_text(TEXT.replace(*change, 1))
    with pytest.raises(ReprobuildError) as caught:
        make_fixture(fixture, tmp_path / "made.git")
    assert caught.value.code == "E-FIXTURE"
    assert message in caught.value.message
    assert caught.value.facts.get("line") == line
    if line is not None:
        assert caught.value.message.startswith(f"{fixture}/repository.toml:{line}: ")
    assert not (tmp_path / "made.git").exists()


def test_no_toml_no_file_no_plain_file(fixture: Path, tmp_path: Path) -> None:
    (fixture / "repository.toml").write_text("[[commit\n")
    with pytest.raises(ReprobuildError, match="line 1"):
        read_fixture(fixture)
    (fixture / "repository.toml").unlink()
    with pytest.raises(ReprobuildError, match=r"holds no repository\.toml"):
        read_fixture(fixture)
    (fixture / "repository.toml").write_text(TEXT)
    (fixture / "next" / "evil").symlink_to("/etc/passwd")
    with pytest.raises(ReprobuildError, match="no plain file"):
        read_fixture(fixture)
    (fixture / "next" / "evil").unlink()
    (fixture / "next" / ".GIT").mkdir()
    (fixture / "next" / ".GIT" / "config").write_text("x")
    with pytest.raises(ReprobuildError, match=r"\.git cannot be a file"):
        read_fixture(fixture)


def test_an_overlay_behind_a_link_is_refused(fixture: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("s")
    (fixture / "away").symlink_to(tmp_path / "outside")
    (fixture / "repository.toml").write_text(TEXT.replace('files = "next"', 'files = "away"'))
    with pytest.raises(ReprobuildError, match="leads through a symbolic link"):
        read_fixture(fixture)


def test_two_makers_of_one_fixture_do_not_disturb_each_other(fixture: Path, tmp_path: Path) -> None:
    first = make_fixture(fixture, tmp_path / "made.git", keep=True)
    inode = (tmp_path / "made.git").stat().st_ino
    assert make_fixture(fixture, tmp_path / "made.git", keep=True) == first
    assert (tmp_path / "made.git").stat().st_ino == inode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fixture", "made.git"]
