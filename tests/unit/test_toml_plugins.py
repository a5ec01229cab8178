"""Packages that are installed beside this tool have no part in reading its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLAIN = "from pydantic import BaseModel\nclass A(BaseModel):\n    a: int\nA(a=1)\n"
OURS = (
    "from pathlib import Path\nfrom reprobuild.adapters.toml.load import load_flake\n"
    "load_flake(Path('flake-like.toml'))\n"
)


def test_no_plugin_of_the_models_library_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "meddler.py").write_text("class Plugin:\n    pass\nplugin = Plugin()\n")
    facts = tmp_path / "meddler-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: meddler\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[pydantic]\nmeddler = meddler:plugin\n")
    (tmp_path / "flake-like.toml").write_text("format = 0\n")
    assert loads_it(
        tmp_path, "try:\n    " + PLAIN.replace("\n", "\n    ") + "\nexcept Exception: pass"
    )
    assert not loads_it(tmp_path, OURS)


def loads_it(home: Path, code: str) -> bool:
    # what this very process has set when it read such files before
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYDANTIC_")}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('meddler' in sys.modules)"],
        cwd=home,
        env={**mine, "PYTHONPATH": str(home)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() == "True"
