"""The same bytes under another umask, time zone, locale, hash seed, directory and thread count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, tempfile
from pathlib import Path
from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.adapters.oci.archive import archive_pieces
from reprobuild.adapters.oci.layout import open_layout, read_layout
from support.archives import deb, tar, tar_entry, zipped
from support.images import quick_image
from support.trees import make
import hashlib

store = MemoryStore(Path(tempfile.mkdtemp()))
image = quick_image(store)
print(image)
with open_layout(store.materialise(image)) as files:
    digest = hashlib.sha256()
    for piece in archive_pieces(files, read_layout(files), "a/b:1"):
        digest.update(piece)
    print(digest.hexdigest())
package = deb("p", [tar_entry(f"./d{n}/f", bytes([n])) for n in range(40)])
inputs = {"deb-0": make(store, {"p.deb": package})}
print(builtins()["rootfs"].build({"files": {"etc/\\u00e4": "\\u00fc"}}, inputs, store)["out"])
archive = zipped([(f"n{n}", b"", 0o100755) for n in range(40)])
print(builtins()["unpack"].build({}, {"archive": make(store, {"a.zip": archive})}, store)["out"])
"""


def outcome(where: Path, umask: int = 0o022, cpus: set[int] | None = None, **env: str) -> str:
    where.mkdir()

    def prepare() -> None:
        os.umask(umask)
        if cpus is not None:
            os.sched_setaffinity(0, cpus)

    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=where,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(tests),
            "TMPDIR": str(where),
            "PYTHONHASHSEED": "0",
            **env,
        },
        preexec_fn=prepare,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return outcome(tmp_path_factory.mktemp("plain") / "x")


@pytest.mark.parametrize(
    "change",
    [
        {"umask": 0o077},
        {"umask": 0},
        {"TZ": "Pacific/Kiritimati", "LANG": "tr_TR.UTF-8", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "12345", "PYTHONUTF8": "0", "LC_ALL": "POSIX"},
        {"SOURCE_DATE_EPOCH": "1", "HOME": "/nonexistent", "USER": "someone"},
        {"cpus": {min(os.sched_getaffinity(0))}},
    ],
    ids=str,
)
def test_nothing_around_moves_a_byte(tmp_path: Path, plain: str, change: dict[str, str]) -> None:
    assert len(plain.split()) == 4
    assert outcome(tmp_path / "somewhere else, ünüsual", **change) == plain  # type: ignore[arg-type]
