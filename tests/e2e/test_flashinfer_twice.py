"""Eight modules of FlashInfer, built twice from empty stores: other directories, another order and
parallelism, other processes started in between. Objects and libraries are equal, for sm_120a alone.

Takes some ten minutes on two cores. REPROBUILD_TEST_MODULES names a part of the modules.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from support.quickstart import Command, copy_quickstart

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

MODULES = tuple(
    os.environ.get(
        "REPROBUILD_TEST_MODULES",
        "silu_and_mul fp4_kv_quant fp4_kv_dequant quantization cascade page mhc norm",
    ).split()
)
FORKING = """
from dataclasses import replace
from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
from reprobuild.cli.main import entry

run = BubblewrapExecutor.run
SCRIPT = 'for i in 1 2 3 4 5; do ( : ) & done; wait; exec "$@"'

def forking(self, request, *rest):
    return run(self, replace(request, argv=("/bin/sh", "-c", SCRIPT, "sh", *request.argv)), *rest)

BubblewrapExecutor.run = forking
entry()
"""


@dataclass(frozen=True)
class Forking(Command):
    """The command, with five processes started in each sandbox before the build's own."""

    def run(self, *words: str, status: int = 0, offline: bool = False) -> str:
        options = ["-C", str(self.project), "--store", str(self.store)]
        done = subprocess.run(
            [sys.executable, "-c", FORKING, *options, *words],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


def results(command: Command, module: str) -> dict[str, str]:
    """Tree by derivation and output, of all that a module's kernels came by."""
    store = LocalStore.open(command.store)
    found: dict[str, str] = {}
    graph = command.json("graph", f"kernels.flashinfer.{module}", "--format", "json")
    for drv, node in graph["nodes"].items():
        record = store.realized(Digest.parse(drv))
        if record is not None and node["name"].startswith("flashinfer."):
            for output, tree in record.outputs.items():
                found[f"{node['name']} {output}"] = str(tree)
    return found


def test_built_twice_from_nothing_they_are_the_same(tmp_path: Path) -> None:
    first = Command(copy_quickstart(tmp_path / "a" / "project"), tmp_path / "a" / "store")
    names = [f"kernels.flashinfer.{module}" for module in MODULES]
    first.run("realize", "-j", "2", *names)
    other = tmp_path / "somewhere" / "else"
    second = Forking(copy_quickstart(other / "checkout"), other / "kept")
    for name in reversed(names):
        second.run("realize", "-j", "1", name)
    for module in MODULES:
        ones, twos = results(first, module), results(second, module)
        objects = [name for name in ones if name.endswith(".cu out")]
        assert objects
        assert ones == twos
        modules = first.json("kernels", f"kernels.flashinfer.{module}")["modules"]
        assert [(m["archs"], m["ptx"]) for m in modules.values()] == [(["sm_120a"], [])]
