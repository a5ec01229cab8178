"""lock --update COMPONENT.pulls.NUMBER: accepting a pull request's new head."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from reprobuild.cli.main import run

FLAKE = """\
format = 0
default = "one"

[inputs.repo]
kind = "git"
url = "file://{url}"
ref = "refs/heads/main"

[outputs.one]
components = ["app"]

[outputs.one.sources.app]
input = "repo"
heads = [
  {{ number = 7, head = "{head}", title = "A head" }},  # reviewed
]
tree = "{tree}"
"""
COMPONENT = 'result = "source"\ninput = "repo"\n'


def git(repository: Path, *words: str) -> str:
    environment = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "HOME": str(repository),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    }
    done = subprocess.run(
        ["git", "-C", str(repository), *words],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    repository = tmp_path / "origin"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    (repository / "a.txt").write_text("a\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "base")
    push_head(repository, "one\n")
    return repository


def push_head(repository: Path, text: str) -> str:
    git(repository, "checkout", "-q", "--detach", "main")
    (repository / "b.txt").write_text(text)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "head")
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "update-ref", "refs/pull/7/head", commit)
    git(repository, "checkout", "-q", "main")
    return commit


@pytest.fixture
def project(tmp_path: Path, origin: Path) -> Path:
    head = git(origin, "rev-parse", "refs/pull/7/head")
    directory = tmp_path / "project"
    (directory / "derivations").mkdir(parents=True)
    tree = git(origin, "rev-parse", f"{head}^{{tree}}")
    (directory / "flake-like.toml").write_text(FLAKE.format(url=origin, head=head, tree=tree))
    (directory / "derivations" / "app.toml").write_text(COMPONENT)
    assert run(["-C", str(directory), "lock"]) == 0
    return directory


def test_a_stated_head_moves_in_the_flake_and_in_the_lock(project: Path, origin: Path) -> None:
    before = (project / "flake-like.toml").read_text()
    old = git(origin, "rev-parse", "refs/pull/7/head")
    new = push_head(origin, "two\n")
    tree = git(origin, "rev-parse", f"{new}^{{tree}}")

    assert run(["-C", str(project), "lock"]) == 0
    assert old in (project / "flake-like.lock").read_text()  # nothing moves unasked

    assert run(["-C", str(project), "lock", "--update", "app.pulls.7"]) == 0
    published = git(origin, "rev-parse", f"{old}^{{tree}}")
    expected = before.replace(old, new).replace(f'tree = "{published}"\n', "")
    assert (project / "flake-like.toml").read_text() == expected
    lock = (project / "flake-like.lock").read_text()
    assert new in lock
    assert tree in lock
    assert old not in lock
    assert run(["-C", str(project), "lock", "--check"]) == 0


def test_a_head_that_cannot_be_had_changes_nothing(project: Path, origin: Path) -> None:
    before = {p.name: p.read_bytes() for p in project.iterdir() if p.is_file()}
    git(origin, "update-ref", "-d", "refs/pull/7/head")
    assert run(["-C", str(project), "lock", "--update", "app.pulls.7"]) == 4
    assert {p.name: p.read_bytes() for p in project.iterdir() if p.is_file()} == before


def test_an_output_is_asked_for_where_several_state_the_head(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "flake-like.toml"
    text = path.read_text()
    second = text[text.index("[outputs.one]") :].replace("outputs.one", "outputs.two")
    path.write_text(text + "\n" + second)
    assert run(["-C", str(project), "lock", "--update", "app.pulls.7"]) == 2
    assert "one.app.pulls.7" in capsys.readouterr().err
    assert run(["-C", str(project), "lock", "--update", "two.app.pulls.7"]) == 0


def test_a_number_that_is_not_there_loses_no_pin(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flake, lock = project / "flake-like.toml", project / "flake-like.lock"
    right, pinned = flake.read_text(), lock.read_text()
    flake.write_text(re.sub(r"number = 7, head = \"\w+\"", "number = 99", right))
    capsys.readouterr()
    for _ in range(2):
        assert run(["-C", str(project), "lock"]) == 4
        said = capsys.readouterr()
        assert "pinned" not in said.out
        assert "has no refs/pull/99/head" in said.err
        assert "outputs.one.app" in said.err
        assert "check name, number" in said.err
        assert "[outputs.one.sources.app]" in lock.read_text()
    assert run(["-C", str(project), "--json", "lock"]) == 4
    assert "E-REF-MISSING" in json.loads(capsys.readouterr().out)["open"]["one"]
    assert run(["-C", str(project), "realize", "--dry-run"]) == 4
    said = capsys.readouterr()
    assert "check the number" in said.err  # and not how to give a mirror
    assert "[mirrors]" not in said.err

    flake.write_text(right)
    assert run(["-C", str(project), "lock"]) == 0
    assert lock.read_text() == pinned


def test_a_place_that_is_not_reached_is_said_once(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = "http://127.0.0.1:9/away.git"
    flake = project / "flake-like.toml"
    more = f'''
[inputs.away]
kind = "git"
url = "{away}"
ref = "refs/heads/main"

[outputs.two]
components = ["app"]
sources.app = {{ input = "away", heads = [{{ number = 1 }}] }}

[outputs.three]
components = ["app"]
sources.app = {{ input = "away", heads = [{{ number = 2 }}] }}
'''
    flake.write_text(flake.read_text() + more)
    for words, why in (([], "git cannot"), (["--offline"], "the network is off")):
        capsys.readouterr()
        assert run(["-C", str(project), *words, "lock"]) == 0
        _said_once(capsys.readouterr().err, away, why)


def _said_once(err: str, away: str, why: str) -> None:
    lines = [x for x in err.splitlines() if x.startswith(("open", "  "))]
    (line,) = [line for line in lines if away in line]
    assert why in line
    assert "        wanted for inputs.away, outputs.three.app, outputs.two.app" in lines
    assert lines[-1] == "open    outputs that wait for that: three, two"


def test_a_repository_whose_path_has_a_space(
    project: Path, origin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = project / "flake-like.lock"
    pinned = re.findall(r"^(?:tree|base|patch-sha256) = .*$", lock.read_text(), re.MULTILINE)
    place = origin.with_name("own place")
    origin.rename(place)
    lock.unlink()
    flake = project / "flake-like.toml"
    text = flake.read_text()
    for url in (str(place), f"file://{origin.parent}/own%20place"):
        flake.write_text(text.replace(f"file://{origin}", url))
        assert run(["-C", str(project), "lock"]) == 0
        found = re.findall(r"^(?:tree|base|patch-sha256) = .*$", lock.read_text(), re.MULTILINE)
        assert found == pinned
        assert run(["-C", str(project), "realize", "one.app"]) == 0
    flake.write_text(text.replace(f"file://{origin}", f"file://{place}"))
    capsys.readouterr()
    assert run(["-C", str(project), "lock"]) == 3
    assert "%20" in capsys.readouterr().err


def test_a_wrong_digest_in_the_flake_says_where_to_mend_it(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.txt").write_text("content")
    flake = project / "flake-like.toml"
    more = f"""
[inputs.file]
kind = "url"
url = "file://{tmp_path}/file.txt"
sha256 = "{"0" * 64}"
"""
    flake.write_text(flake.read_text() + more)
    capsys.readouterr()
    assert run(["-C", str(project), "lock"]) == 4
    said = capsys.readouterr().err
    assert "under [inputs.file] in the flake" in said
    assert "inputs.file.sha256" in said
    assert "--update" not in said
