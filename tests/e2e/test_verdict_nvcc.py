"""Verdicts on what real compilers write: each way that two builds of one kernel come to differ."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin.findings import Cause
from reprobuild.core.cubin.verdict import FileVerdict, judge_files
from support.nvcc import ARCH, Toolkit, realized

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

SOURCE = """
#include <cstdio>
namespace { __global__ void hidden(float* x) { x[threadIdx.x] += 1; } }
static __global__ void doubled(float* x) { x[threadIdx.x] *= 2; }
__device__ float table[4] = {1, 2, 3, 4};
__global__ void open_(float* x) { x[threadIdx.x] *= table[threadIdx.x & 3]; }
extern "C" void a_go(float* x) {
  hidden<<<1, 32>>>(x);
  doubled<<<1, 32>>>(x);
  open_<<<1, 32>>>(x);
  puts(__FILE__);
}
"""
OTHER = """
__global__ void bee(float* x) { x[threadIdx.x] += 7; }
extern "C" void b_go(float* x) { bee<<<1, 32>>>(x); }
"""
NOTHING_EXTERNAL = """
namespace {
__global__ void only(float* x) { x[threadIdx.x] += 7; }
void go(float* x) { only<<<1, 32>>>(x); }
struct Start { Start() { go(nullptr); } } start;
}
"""


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Toolkit:
    return realized(tmp_path_factory.mktemp("verdict"), "quickstart.lmcache")[1]


class Bench:
    """Sources and objects in directories of one test."""

    def __init__(self, toolkit: Toolkit, home: Path) -> None:
        self.toolkit, self.home = toolkit, home

    def make(self, text: str, *flags: str, name: str = "a.cu", place: str = "one") -> bytes:
        """The object of a source that lies in the directory `place`."""
        source = self.home / place / name
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)
        return self.toolkit.compile(source, self.home / f"{source.stem}.o", *flags)

    def plain(self, text: str, *flags: str) -> bytes:
        """The same without kept intermediates and seed."""
        source = self.home / "a.cu"
        source.write_text(text)
        words = ("-c", "a.cu", "-o", "plain.o", ARCH, "--compiler-options=-fPIC", *flags)
        self.toolkit.run("nvcc", *words, cwd=self.home)
        return (self.home / "plain.o").read_bytes()

    def link(self, *objects: bytes) -> bytes:
        """A shared library of the objects, in this order."""
        for number, data in enumerate(objects):
            (self.home / f"{number}.o").write_bytes(data)
        names = [f"{number}.o" for number in range(len(objects))]
        command = ["g++", "-shared", "-o", "linked.so", *names]
        subprocess.run(command, cwd=self.home, check=True)
        return (self.home / "linked.so").read_bytes()


@pytest.fixture
def bench(toolkit: Toolkit, tmp_path: Path) -> Bench:
    return Bench(toolkit, tmp_path)


def verdict(one: bytes, two: bytes) -> FileVerdict:
    assert one != two
    return judge_files("a.o", one, two, inflate)


def causes(found: FileVerdict) -> set[Cause]:
    return {finding.cause for finding in found.findings}


def test_the_recipe_gives_the_same_twice(bench: Bench) -> None:
    assert bench.make(SOURCE) == bench.make(SOURCE)


def test_without_kept_intermediates(bench: Bench) -> None:
    found = verdict(bench.plain(SOURCE), bench.plain(SOURCE))
    assert causes(found) == {Cause.TEMPORARY_NAME}
    assert found.device == "identical"


def test_kept_and_object_directory(bench: Bench) -> None:
    found = verdict(bench.plain(SOURCE), bench.plain(SOURCE, "-objtemp"))
    assert causes(found) <= {Cause.TEMPORARY_NAME, Cause.PATH_NAME}
    assert found.device == "identical"


def test_a_unit_without_external_names(bench: Bench) -> None:
    found = verdict(bench.plain(NOTHING_EXTERNAL), bench.plain(NOTHING_EXTERNAL))
    assert causes(found) == {Cause.TEMPORARY_NAME}
    assert found.device == "identical"


def test_another_source_path(bench: Bench) -> None:
    found = verdict(bench.make(SOURCE), bench.make(SOURCE, place="another"))
    assert causes(found) == {Cause.PATH_NAME}
    assert found.device == "identical"


@pytest.mark.parametrize("mode", ["none", "speed", "default"])
def test_another_compression(mode: str, bench: Bench) -> None:
    every = "-Xfatbin=-compress-all"
    one = bench.make(SOURCE, every, "--compress-mode=size")
    found = verdict(one, bench.make(SOURCE, every, f"--compress-mode={mode}"))
    assert causes(found) == {Cause.COMPRESSION}
    assert found.device == "identical"


def test_another_link_order(bench: Bench) -> None:
    one, two = bench.make(SOURCE), bench.make(OTHER, name="b.cu")
    found = verdict(bench.link(one, two), bench.link(two, one))
    assert causes(found) == {Cause.LINK_ORDER}
    assert found.device == "identical"


def test_another_path_in_a_library(bench: Bench) -> None:
    other = bench.make(OTHER, name="b.cu")
    one, two = bench.make(SOURCE), bench.make(SOURCE, place="a-much-longer-directory")
    found = verdict(bench.link(one, other), bench.link(two, other))
    assert causes(found) <= {Cause.PATH_NAME, Cause.LAYOUT}
    assert found.cause == Cause.PATH_NAME
    assert found.device == "identical"


def test_a_changed_kernel(bench: Bench) -> None:
    changed = SOURCE.replace("x[threadIdx.x] *= 2;", "x[threadIdx.x] *= 3;")
    found = verdict(bench.make(SOURCE), bench.make(changed))
    assert found.findings[0].cause == Cause.DEVICE_CODE
    assert found.findings[0].where == ("_Z7doubledPf",)
    assert found.device == "different"


def test_a_changed_kernel_under_another_path_and_compression(bench: Bench) -> None:
    """The made-up names of all kernels differ, too; only one is named."""
    changed = SOURCE.replace("x[threadIdx.x] *= 2;", "x[threadIdx.x] *= 3;")
    other = bench.make(changed, "--compress-mode=size", place="another")
    found = verdict(bench.make(SOURCE), other)
    assert found.findings[0].where == ("_Z7doubledPf",)
    assert Cause.PATH_NAME in causes(found)


def test_changed_device_data(bench: Bench) -> None:
    found = verdict(bench.make(SOURCE), bench.make(SOURCE.replace("1, 2, 3, 4", "1, 2, 3, 5")))
    assert (found.cause, found.device) == (Cause.DEVICE_DATA, "different")


def test_host_code_only(bench: Bench) -> None:
    changed = SOURCE.replace("doubled<<<1, 32>>>", "doubled<<<1, 64>>>")
    found = verdict(bench.make(SOURCE), bench.make(changed))
    assert (found.cause, found.device) == (Cause.HOST_CODE, "identical")
    assert "a_go" in found.findings[0].detail
    assert causes(found) <= {Cause.HOST_CODE, Cause.HOST_DATA}


def test_line_information(bench: Bench) -> None:
    one = bench.make(SOURCE, "-lineinfo")
    found = verdict(one, bench.make(SOURCE, "-lineinfo", place="another"))
    assert causes(found) == {Cause.DEBUG, Cause.PATH_NAME}
    assert found.device == "identical"


def test_split_compile_is_noted_by_the_compiler(bench: Bench) -> None:
    found = verdict(bench.make(SOURCE), bench.make(SOURCE, "--split-compile=2"))
    assert Cause.COMPILER in causes(found)
    assert "split-compile" in str(found.findings)
    assert found.device == "identical"


def test_the_time_in_the_source(bench: Bench) -> None:
    text = SOURCE.replace("__FILE__", '__DATE__ " " __TIME__')
    found = verdict(
        bench.make(text.replace("__TIME__", '"08:00:00"')),
        bench.make(text.replace("__TIME__", '"09:00:00"')),
    )
    assert causes(found) == {Cause.TIMESTAMP}


def test_another_architecture(bench: Bench) -> None:
    found = verdict(bench.make(SOURCE), bench.make(SOURCE, "-gencode=arch=compute_90a,code=sm_90a"))
    assert (found.cause, found.device) == (Cause.DEVICE_CODE, "different")
    said = {finding.detail for finding in found.findings}
    assert "machine code for sm_120a is in the first only" in said
    assert "machine code for sm_90a is in the second only" in said
