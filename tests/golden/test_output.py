"""What commands print, for people and as JSON, over the project under drvs/project.

Nothing is fetched or built. Digests are written as `blake3:…`: drvs/ holds those that are golden.
`REPROBUILD_UPDATE_GOLDEN=1` writes the files anew; read the difference before it is kept.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from reprobuild.adapters.toml.load import load_project
from reprobuild.adapters.toml.render_lock import write_lock
from reprobuild.cli.main import run
from support.pins import made_up_lock

HERE = Path(__file__).parent
UPDATE = os.environ.get("REPROBUILD_UPDATE_GOLDEN") == "1"

CASES: dict[str, tuple[str, ...]] = {
    "show/show.txt": ("show",),
    "show/why.txt": ("why", "demo", "tools.extra"),
    "show/graph.txt": ("graph", "demo.tools"),
    "show/graph.dot": ("graph", "demo.tools", "--format", "dot"),
    "show/lock-check.txt": ("lock", "--check"),
    "json/show.json": ("--json", "show"),
    "json/why.json": ("--json", "why", "demo", "tools.extra"),
    "json/lock-check.json": ("--json", "lock", "--check"),
    "json/dry-run.json": ("--json", "realize", "demo.tools", "--dry-run"),
    "json/error-output.json": ("--json", "realize", "dmeo"),
    "json/error-component.json": ("--json", "show", "demo.tolls"),
    "json/error-fetch.json": ("--json", "--offline", "--quiet", "realize", "demo.notes"),
    "json/error-override.json": ("--json", "realize", "--override", "notes=git:x"),
    "json/error-derivation.json": ("--json", "why", "demo", "tools.extr"),
    "json/error-log.json": ("--json", "log", "tools.script"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = Path(shutil.copytree(HERE / "drvs/project", tmp_path / "project"))
    write_lock(path / "flake-like.lock", made_up_lock(load_project(path).flake))
    return path


def masked(text: str, project: Path) -> str:
    text = text.replace(str(project), "PROJECT")
    text = re.sub(r"blake3:[0-9a-f]{64}", "blake3:…", text)
    return re.sub(r"\b[0-9a-f]{12}\b", "…", text)


@pytest.mark.parametrize("name", list(CASES))
def test_output(name: str, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = ("--store", str(project / "store"))
    run(["-C", str(project), *store, *CASES[name]])
    out = masked(capfd.readouterr().out, project)
    if name.startswith("json/"):
        out = json.dumps(json.loads(out), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        assert name.startswith("json/error") == ('"error"' in out)
    assert out
    path = HERE / name
    if UPDATE:
        path.write_text(out, encoding="utf-8")
    assert out == path.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    there = {f"{d}/{p.name}" for d in ("show", "json") for p in (HERE / d).iterdir()}
    assert there == set(CASES)
