"""Wrong flakes, component files and locks, each with the error that a person reads.

`REPROBUILD_UPDATE_GOLDEN=1` writes the expected texts anew; read the difference before it is kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from reprobuild.adapters.toml.load import load_project
from reprobuild.errors import CODES, ReprobuildError

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


@pytest.mark.parametrize("case", sorted(p.name for p in CASES.iterdir()))
def test_says_what_is_wrong_and_touches_nothing(case: str, tmp_path: Path) -> None:
    expected = CASES / case / "expected.txt"
    project = tmp_path / "project"
    shutil.copytree(CASES / case, project, ignore=shutil.ignore_patterns("expected.txt"))
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
