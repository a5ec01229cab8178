"""A few programs of this machine as a tree that runs on its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.trees import Given


def program(name: str, at: str) -> dict[str, Given]:
    """The program, placed at `at`, with its loader and libraries where it looks for them."""
    found = shutil.which(name)
    if found is None or shutil.which("ldd") is None:
        pytest.skip(f"{name} or ldd is not installed")
    files: dict[str, Given] = {at: (Path(found).resolve().read_bytes(), True)}
    run = subprocess.run(["ldd", found], capture_output=True, text=True, check=False)
    for path in re.findall(r"(/\S+) \(0x", run.stdout):
        files[path.lstrip("/")] = (Path(path).resolve().read_bytes(), True)
    return files
