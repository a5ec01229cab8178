"""After one of N units was touched: `realize` against ninja with ccache, on the same module.

Both build the same units with the same toolkit and flags, in turns, so that what else the machine
does hits both. Prints medians, their spread and the ratios. Elapsed seconds say little on a machine
that does something else. Processor seconds are of all processes, the compiler's in the sandbox too,
where the benchmark can count them in a control group (cpuacct, so as root), and else only of those
that were waited for, which the sandbox's are not: then there is no ratio of them.
Needs ninja, ccache and a g++ that the toolkit takes; the toolkit comes out of the project's lock.

    benchmarks/kernels.py [--units N] [--rounds N] [--store DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
ENTRY = "from reprobuild.cli.main import entry; entry()"
PARTS = ("flake-like.toml", "flake-like.lock", "derivations", "fixtures", "kernels", "releases")
DEFINES = ("NDEBUG",)
CODE = "-gencode=arch=compute_120a,code=sm_120a"

FLAKE = """
[inputs.bench]
kind = "path"
path = "bench"

[outputs.bench]
components = ["bench", "cuda"]
toolchain = "sm120"
"""

UNIT = """\
#include <cuda_fp16.h>
#include <cub/block/block_reduce.cuh>
#include "common.h"
template <int N> __global__ void reduce_{number}(const float* in, __half* out) {{
  using Reduce = cub::BlockReduce<float, N>;
  __shared__ typename Reduce::TempStorage storage;
  float sum = Reduce(storage).Sum(scale(in[blockIdx.x * N + threadIdx.x]) * {value}.0f);
  if (threadIdx.x == 0) out[blockIdx.x] = __float2half(sum);
}}
template __global__ void reduce_{number}<64>(const float*, __half*);
template __global__ void reduce_{number}<128>(const float*, __half*);
template __global__ void reduce_{number}<256>(const float*, __half*);
"""
COMMON = "__device__ inline float scale(float x) { return x * 2; }\n"


def write_unit(directory: Path, number: int, value: int) -> None:
    """One unit; another `value` is another code."""
    (directory / f"u{number}.cu").write_text(UNIT.format(number=number, value=value))


def make_project(home: Path, units: int) -> None:
    """The project with a module of its own beside it."""
    for part in PARTS:
        source = PROJECT / part
        if source.is_dir():
            shutil.copytree(source, home / part)
        elif source.exists():
            shutil.copy(source, home / part)
    with (home / "flake-like.toml").open("a") as flake:
        flake.write(FLAKE)
    names = ", ".join(f'"u{number}.cu"' for number in range(units))
    (home / "derivations/bench.toml").write_text(
        'version = "1"\ninput = "bench"\nresult = "steps.module"\n\n[steps.module]\n'
        f'kind = "cuda-module"\nsource = "source"\nunits = [{names}]\narch = ["sm_120a"]\n'
        f"defines = {json.dumps(list(DEFINES))}\n"
    )
    directory = home / "bench"
    directory.mkdir()
    (directory / "common.h").write_text(COMMON)
    for number in range(units):
        write_unit(directory, number, 1)


def reprobuild(home: Path, store: Path, *words: str) -> dict[str, Any]:
    """One call; its JSON document."""
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "-C", str(home), "--store", str(store), "--json", *words],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    )
    document: dict[str, Any] = json.loads(done.stdout or b"{}")
    return document


def write_ninja(build: Path, source: Path, cuda: Path, units: int) -> None:
    """The same module for ninja: one object a unit through ccache, and the link."""
    flags = f"{CODE} -std=c++17 -O3 --compiler-options=-fPIC --threads=1 " + " ".join(
        f"-D{define}" for define in DEFINES
    )
    lines = [
        "rule cc",
        f"  command = ccache {cuda}/bin/nvcc -MD -MF $out.d -c $in -o $out {flags}",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = g++ $in -shared -o $out -L{cuda}/lib64 -lcudart",
        *(f"build u{n}.o: cc {source}/u{n}.cu" for n in range(units)),
        "build module.so: link " + " ".join(f"u{n}.o" for n in range(units)),
    ]
    (build / "build.ninja").write_text("\n".join(lines) + "\n")


class Meter:
    """Elapsed and processor seconds of what this process starts.

    A control group counts also what ends without being waited for. Interface: the kernel's
    Documentation/admin-guide/cgroup-v1/cpuacct.rst (`cpuacct.usage` is in nanoseconds).
    """

    def __init__(self) -> None:
        self._top = Path("/sys/fs/cgroup/cpuacct")
        self._group = self._top / f"reprobuild-benchmark-{os.getpid()}"
        self.counts_all = False
        with contextlib.suppress(OSError):
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
            self.counts_all = True

    def close(self) -> None:
        """Leaves the group."""
        with contextlib.suppress(OSError):
            (self._top / "cgroup.procs").write_text(str(os.getpid()))
            self._group.rmdir()

    def processor(self) -> float:
        """Processor seconds until now."""
        if self.counts_all:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    def timed(self, action: Callable[[], object]) -> tuple[float, float]:
        """Runs it; elapsed and processor seconds."""
        before, started = self.processor(), time.perf_counter()
        action()
        return time.perf_counter() - started, self.processor() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", type=Path, help="default: the project's store")
    given = parser.parse_args()
    missing = [tool for tool in ("ninja", "ccache", "g++") if shutil.which(tool) is None]
    if missing:
        print(f"not measured: {', '.join(missing)} missing")
        return 0
    meter = Meter()
    with tempfile.TemporaryDirectory() as scratch, contextlib.closing(meter):
        home, build = Path(scratch, "project"), Path(scratch, "ninja")
        home.mkdir()
        build.mkdir()
        store = given.store or PROJECT / "store/data"
        make_project(home, given.units)
        source = home / "bench"
        override = ("--override", f"bench=path:{source}")
        reprobuild(home, store, "lock", "--update", "bench")
        done = reprobuild(home, store, "realize", "bench.bench", "bench.cuda")
        write_ninja(build, source, Path(done["outputs"]["bench.cuda"]["path"]), given.units)
        environment = {**os.environ, "CCACHE_DIR": str(build / "ccache")}

        def ninja() -> None:
            subprocess.run(["ninja", "-C", build], check=True, stdout=subprocess.DEVNULL,
                           env=environment)  # fmt: skip

        def realize() -> dict[str, Any]:
            return reprobuild(home, store, "realize", "bench.bench", *override)

        ninja()
        realize()
        ours: list[tuple[float, float]] = []
        theirs: list[tuple[float, float]] = []
        for number in range(given.rounds):
            write_unit(source, number % given.units, time.time_ns() % 10**6 + 2)
            pairs = [(ours, realize), (theirs, ninja)]
            for times, action in pairs if number % 2 else reversed(pairs):
                times.append(meter.timed(action))
    medians = {}
    for name, times in (("realize", ours), ("ninja + ccache", theirs)):
        for kind, column in (("elapsed", 0), ("processor", 1)):
            values = [row[column] for row in times]
            medians[name, kind] = middle = statistics.median(values)
            spread = f"{min(values):.2f}–{max(values):.2f}, {given.rounds} rounds"
            print(f"{name:<15} {kind:<9} {middle:6.2f} s  ({spread})")
    for kind in ("elapsed", "processor") if meter.counts_all else ("elapsed",):
        ratio = medians["realize", kind] / medians["ninja + ccache", kind]
        print(f"ratio           {kind:<9} {ratio:6.2f}    one of {given.units} units touched")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
