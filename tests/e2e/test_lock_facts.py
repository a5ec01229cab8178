"""A lock that was changed by other means than `lock`: what it says beside the tree is checked too,
since labels and statements repeat it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.cliin import Said, cli
from support.gitkit import Origin

LINES = "".join(f"line {n}\n" for n in range(1, 21))


def line(number: int, said: str) -> str:
    return LINES.replace(f"line {number}\n", f"{said}\n")


class Project:
    """A flake with two heads that conflict, the resolution recorded, over a local repository."""

    def __init__(self, tmp: Path, files: Mapping[Any, Any] | None = None) -> None:
        self.tmp = tmp
        self.origin = Origin.make(tmp / "origin.git")
        base = self.origin.commit({"a.txt": LINES}, ref="refs/heads/main")
        self.origin.pull(1, {"a.txt": line(1, "one"), **(files or {})}, [base])
        self.origin.pull(2, {"a.txt": line(1, "two"), "b.txt": "b\n"}, [base])
        self.path = tmp / "project"
        (self.path / "derivations").mkdir(parents=True)
        (self.path / "derivations" / "lib.toml").write_text('input = "lib"\nresult = "source"\n')
        (self.path / "flake-like.toml").write_text(
            'format = 0\ndefault = "rel"\n'
            f'[inputs.lib]\nkind = "git"\nurl = "{self.origin.path}"\nref = "refs/heads/main"\n'
            '[outputs.rel]\ncomponents = ["lib"]\n'
            '[outputs.rel.sources.lib]\ninput = "lib"\n'
            f'base-commit = "{base}"\nheads = [{{ number = 1 }}, {{ number = 2 }}]\n'
        )
        answer = tmp / "answer"
        answer.write_text(line(1, "one and two"))
        self.ok("integrate", "rel.lib", "--resolve", f"a.txt={answer}", "--author", "Ann",
                "--reason", "both")  # fmt: skip
        self.ok("lock")

    @property
    def lock(self) -> Path:
        return self.path / "flake-like.lock"

    def run(self, *argv: str, store: str = "store") -> Said:
        return cli("-C", str(self.path), "--store", str(self.tmp / store), *argv)

    def ok(self, *argv: str) -> None:
        said = self.run(*argv)
        assert said.status == 0, said

    def forge(self, pattern: str, new: str) -> None:
        """Writes something else into the lock, once."""
        text, count = re.subn(pattern, new, self.lock.read_text(), count=1)
        assert count == 1, pattern
        self.lock.write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def refused(project: Project, *words: str) -> None:
    """Neither the check nor a build in an empty store takes the lock; both say these words."""
    for argv in (("lock", "--check"), ("realize", "rel.lib")):
        said = project.run(*argv, store="fresh")
        assert said.status == 4, said
        for word in words:
            assert word in said.err, said.err


def test_what_was_locked_is_taken(project: Project) -> None:
    for argv in (("lock", "--check"), ("realize", "rel.lib")):
        said = project.run(*argv, store="fresh")
        assert said.status == 0, said


@pytest.mark.parametrize(
    ("pattern", "new", "words"),
    [
        (r'patch-sha256 = "\w+"', f'patch-sha256 = "{"5" * 64}"', ["patch-sha256", "5" * 64]),
        (
            r'patch-digest = "(\w+:)?\w+"',
            rf'patch-digest = "\g<1>{"6" * 64}"',
            ["patch-digest", "6" * 64],
        ),
        (r'"merged"', '"already_in_base"', ["PR #1", "already_in_base", "merged"]),
        (r'(disposition = "merged")', r"\1, squashed-in-base = true", ["PR #1", "squashed"]),
        (r'strategy = "merge"', 'strategy = "cherry_pick"', ["strategy", "cherry_pick", "flake"]),
        (r'base-ref = "refs/heads/main"', 'base-ref = "refs/heads/old"', ["base-ref", "old"]),
        (r'base = "\w+"', f'base = "{"7" * 40}"', ["base is", "7" * 40]),
        (r"number = 2\b", "number = 3", ["heads is 1, 3 in the lock and 1, 2 in the flake"]),
        (r'author = "Ann"', 'author = "Bob"', ["a.txt", "recorded"]),
        (r'ref = "refs/heads/main"', 'ref = "refs/heads/old"', ["refs/heads/old"]),
    ],
)
def test_a_fact_that_is_not_so(project: Project, pattern: str, new: str, words: list[str]) -> None:
    project.forge(pattern, new)
    refused(project, *words)


def test_what_disagrees_with_the_flake_is_pinned_anew(project: Project) -> None:
    right = project.lock.read_text()
    project.forge(r'strategy = "merge"', 'strategy = "cherry_pick"')
    project.ok("lock")
    assert project.lock.read_text() == right


def test_a_check_passes_over_what_is_not_at_hand(project: Project) -> None:
    """Without the repository nothing can be integrated, and nothing is fetched for a check."""
    project.forge(r'patch-sha256 = "\w+"', f'patch-sha256 = "{"5" * 64}"')
    shutil.rmtree(project.origin.path)
    assert project.run("lock", "--check").status == 0


def test_a_check_leaves_no_store_behind(project: Project) -> None:
    project.run("lock", "--check", store="fresh")
    assert not (project.tmp / "fresh" / "cache").exists()


@pytest.mark.parametrize("repository", ["at hand", "gone"])
@pytest.mark.parametrize(
    "change", [lambda blob: blob.write_text("another\n"), lambda blob: blob.unlink()]
)
def test_a_resolution_that_was_changed_on_disk(
    project: Project, change: Callable[[Path], None], repository: str
) -> None:
    (blob,) = (project.path / "resolutions").glob("*.blob")
    change(blob)
    if repository == "gone":
        shutil.rmtree(project.origin.path)
        said = project.run("lock", "--check")
        assert said.status == 4 and blob.name in said.err, said
    else:
        refused(project, blob.name)


def test_the_patch_of_a_binary_file_is_as_zlib_made_it(tmp_path: Path) -> None:
    """Its digest may differ from one zlib to another, which is no news; what changed is pinned."""
    project = Project(tmp_path, {"image.bin": bytes(range(256)) * 40})
    project.forge(r'patch-sha256 = "\w+"', f'patch-sha256 = "{"5" * 64}"')
    for argv in (("lock", "--check"), ("realize", "rel.lib")):
        assert project.run(*argv, store="other").status == 0
    project.forge(r'patch-digest = "(\w+:)?\w+"', rf'patch-digest = "\g<1>{"6" * 64}"')
    refused(project, "patch-digest")
