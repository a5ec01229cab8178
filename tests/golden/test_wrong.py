"""Wrong flakes, component files and locks, each with the error that a person reads.

`REPROBUILD_UPDATE_GOLDEN=1` writes the expected texts anew; read the difference before it is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from reprobuild.adapters.toml.load import load_project
from reprobuild.cli.main import run
from reprobuild.errors import ReprobuildError
from reprobuild.errors.codes import CODES

CASES = Path(__file__).parent / "wrong"
UPDATE = os.environ.get("REPROBUILD_UPDATE_GOLDEN") == "1"


def rendered(error: ReprobuildError) -> str:
    """All that the error says, as text."""
    exit_status = int(CODES[error.code].exit)
    lines = [f"code: {error.code} (exit {exit_status})", f"message: {error.message}", "facts:"]
    for key, value in sorted(error.facts.items()):
        if isinstance(value, list):
            lines.append(f"  {key}:")
            lines += [f"    - {item}" for item in value]
        else:
            lines.append(f"  {key}: {value}")
    return "\n".join([*lines, f"hint: {error.hint}", ""])


def content(directory: Path) -> str:
    """A digest of all that is below `directory`: names, modes, bytes and times."""
    state = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        state.update(f"{path.relative_to(directory)}\0{status.st_mode}\0".encode())
        state.update(f"{status.st_mtime_ns}\0".encode())
        if path.is_file():
            state.update(path.read_bytes())
    return state.hexdigest()


def test_there_are_enough() -> None:
    assert len(list(CASES.iterdir())) >= 40


def project_of(case: str, tmp_path: Path) -> Path:
    """A copy of the case's files, with nothing else beside them."""
    project = tmp_path / "project"
    shutil.copytree(CASES / case, project, ignore=shutil.ignore_patterns("expected.txt"))
    return project


EACH_CASE = pytest.mark.parametrize("case", sorted(p.name for p in CASES.iterdir()))


@EACH_CASE
def test_says_what_is_wrong_and_touches_nothing(case: str, tmp_path: Path) -> None:
    expected = CASES / case / "expected.txt"
    project = project_of(case, tmp_path)
    before = content(tmp_path)
    with pytest.raises(ReprobuildError) as caught:
        load_project(project)
    assert content(tmp_path) == before
    text = rendered(caught.value)
    assert str(tmp_path) not in text
    assert text.isprintable() or all(c.isprintable() or c == "\n" for c in text)
    if UPDATE:
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [["lock"], ["show"], ["realize"]], ids=" ".join)
@EACH_CASE
def test_commands_say_so_and_touch_nothing(
    case: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.delenv("REPROBUILD_STORE", raising=False)
    project = project_of(case, tmp_path)
    before = content(tmp_path)
    assert run(["-C", str(project), "--json", "--offline", *command]) == 3
    assert content(tmp_path) == before
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["error"]
    expected = (CASES / case / "expected.txt").read_text(encoding="utf-8")
    assert f"message: {document['error']['message']}\n" in expected
    assert expected.startswith(f"code: {document['error']['code']} ")
