"""The same image from other versions of Python: every digest of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, tempfile
from pathlib import Path
from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.delivery import Images
from support.images import layer, image, quick_image
from support.released import released

store = MemoryStore(Path(tempfile.mkdtemp()))
packed = {"a": layer(store, {"a": bytes(range(256)) * 9000}, name="a", compression="zstd")}
found = {}
for name, tree in (
    ("quick", quick_image(store)), ("released", released(store)), ("zstd", image(store, packed))
):
    found[name] = Images().inspect(store.materialise(tree)).document()
print(json.dumps(found))
"""
NEEDED = ("blake3", "deflate", "pydantic", "zstandard")


def outcome(python: str, where: Path) -> dict[str, object]:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [python, "-c", PROGRAM],
        cwd=where,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{root / 'tests'}:{root / 'src'}",
            "TMPDIR": str(where),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def versions() -> list[str]:
    from importlib.metadata import version

    return [f"{name}=={version(name)}" for name in NEEDED]


def interpreter(minor: int) -> str | None:
    """One of that version that starts: on PATH, or of pyenv's."""
    homes = sorted((Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python"))
    for found in (shutil.which(f"python3.{minor}"), *map(str, homes)):
        if (
            found
            and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0
        ):
            return found
    return None


@pytest.mark.network
@pytest.mark.parametrize("minor", [12, 13])
def test_other_interpreters_make_the_same_image(tmp_path: Path, minor: int) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"there is no python3.{minor} here")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    other = str(tmp_path / "venv/bin/python")
    got = subprocess.run(
        [other, "-m", "pip", "install", "-q", *versions()], check=False, capture_output=True
    )
    if got.returncode != 0:
        pytest.skip("the package index gives no packages for it")
    first = outcome(sys.executable, tmp_path)
    assert outcome(other, tmp_path) == first
