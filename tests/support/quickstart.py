"""The quickstart release, copied to where a test may change it, and the command as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
ENTRY = "from reprobuild.cli.main import entry; entry()"
PARTS = (
    *("flake-like.toml", "flake-like.lock"),
    *("derivations", "fixtures", "releases", "checks", "kernels"),
)


@dataclass(frozen=True)
class Command:
    """`reprobuild` in a project, with a store of its own."""

    project: Path
    store: Path

    def run(self, *words: str, status: int = 0, offline: bool = False) -> str:
        """What one call prints on standard output; it must exit with `status`."""
        options = ["-C", str(self.project), "--store", str(self.store)]
        options += ["--offline"] if offline else []
        done = subprocess.run(
            [sys.executable, "-c", ENTRY, *options, *words],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"NO_COLOR": "1"},
            check=False,
        )
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words: str, offline: bool = False) -> dict[str, Any]:
        """The document that one call prints with --json."""
        document: dict[str, Any] = json.loads(self.run("--json", *words, offline=offline))
        return document


def copy_quickstart(to: Path) -> Path:
    """The quickstart's own files, and nothing else of the checkout, in the new directory `to`."""
    to.mkdir(parents=True)
    for part in PARTS:
        source = PROJECT / part
        if source.is_dir():
            shutil.copytree(source, to / part)
        else:
            shutil.copy(source, to / part)
    return to


def edit(path: Path, old: str, new: str) -> None:
    """Replaces `old`, which must stand there exactly once."""
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
    path.write_text(text.replace(old, new))
