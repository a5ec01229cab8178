"""The CUDA toolkit of the quickstart, out of a store, used on the host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.quickstart import Command, copy_quickstart

ARCH = "-gencode=arch=compute_120a,code=sm_120a"
STORE = os.environ.get("REPROBUILD_TEST_STORE")
"""A store that may have the quickstart already; it only saves time."""


@dataclass(frozen=True)
class Toolkit:
    """nvcc and its relatives in `root`."""

    root: Path

    def run(self, tool: str, *words: str, cwd: Path) -> str:
        """What a tool prints; it must succeed."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            [self.root / "bin" / tool, *words],
            cwd=cwd,
            env={"PATH": path, "HOME": str(cwd), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{tool} {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def compile(self, source: Path, target: Path, *flags: str) -> bytes:
        """An object, made as cuda-module does but on the host."""
        keep = target.with_suffix(".keep")
        shutil.rmtree(keep, ignore_errors=True)
        keep.mkdir()
        kept = ("--keep", "--keep-dir", str(keep), f"--frandom-seed={source.name}")
        words = ("-c", str(source), "-o", str(target), "--compiler-options=-fPIC", *flags)
        self.run(
            "nvcc", *words, *kept, *(() if "-gencode" in str(flags) else (ARCH,)), cwd=target.parent
        )
        return target.read_bytes()

    def usage(self, file: Path) -> list[tuple[str, int, int, int, int]]:
        """(kernel, registers, stack, shared, constant) as cuobjdump says, sorted."""
        text = self.run("cuobjdump", "-res-usage", str(file), cwd=file.parent)
        pattern = (
            r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:\d+.* CONSTANT\[0\]:(\d+)"
        )
        return sorted((m[0], *map(int, m[1:])) for m in re.findall(pattern, text))

    def listed(self, file: Path, what: str) -> list[str]:
        """The architectures that `cuobjdump --list-…` names, in order."""
        text = self.run("cuobjdump", f"--list-{what}", str(file), cwd=file.parent)
        return re.findall(r"\.(sm_\d+[af]?)\.(?:cubin|ptx)", text)


def realized(base: Path, *installables: str) -> tuple[Command, Toolkit]:
    """The quickstart's components in a store, and the toolkit that they were built with."""
    store = Path(STORE) if STORE else base / "store"
    command = Command(copy_quickstart(base / "project"), store)
    command.run("realize", *installables)
    # A store that served before may hold other toolkits, with less in them.
    tools = ("nvcc", "cuobjdump", "nvdisasm")
    found = [d for d in store.glob("**/materialised/*/bin") if all((d / t).exists() for t in tools)]
    assert found, f"no toolkit in {store} has all of {tools}"
    return command, Toolkit(found[0].parent)
