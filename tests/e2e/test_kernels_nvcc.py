"""What is read from real modules, against what NVIDIA's own tools say of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin.module import Module, read_module
from support.nvcc import Toolkit, realized
from support.quickstart import Command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

COMPONENTS = ("quickstart.flashinfer", "quickstart.lmcache", "quickstart.b12x")
SOURCE = """
template <class T> __global__ void scale(T* x, T a, int n) {
  __shared__ T s[128];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : T(0);
  __syncthreads();
  if (i < n) x[i] = s[(threadIdx.x + 1) % 128] * a;
}
__global__ void __launch_bounds__(64, 2) spill(float* x, int n) {
  float v[200];
  for (int i = 0; i < 200; i++) v[i] = x[i * n + threadIdx.x];
  for (int k = 0; k < n; k++)
    for (int i = 0; i < 200; i++) v[i] = v[i] * v[(i + 7) % 200] + v[(i * k) % 200];
  for (int i = 0; i < 200; i++) x[i * n + threadIdx.x] = v[i];
}
void launch(float* x, double* y, int n) {
  scale<float><<<1, 128>>>(x, 2.f, n);
  scale<double><<<1, 128>>>(y, 2., n);
  spill<<<1, 64>>>(x, n);
}
"""
NINETY = "-gencode=arch=compute_90a,code=sm_90a"
BLACKWELL = "-gencode=arch=compute_120a,code=[sm_120a,compute_120a]"
FAMILY = "-gencode=arch=compute_120f,code=sm_120f"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, Toolkit]:
    return realized(tmp_path_factory.mktemp("kernels"), *COMPONENTS)


@pytest.fixture(scope="module")
def toolkit(built: tuple[Command, Toolkit]) -> Toolkit:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed, which nvcc calls on the host")
    return built[1]


def module(file: Path) -> Module:
    found = read_module(file.read_bytes(), inflate)
    assert found is not None
    return found


def check(file: Path, toolkit: Toolkit, scratch: Path) -> Module:
    """Compares everything that NVIDIA's tools say of a file with what is read here."""
    found = module(file)
    ours = sorted(
        (k.name, k.registers, k.stack, k.shared, k.constant)
        for k in found.kernels
        for _ in range(k.copies)
    )
    assert ours == toolkit.usage(file)
    # cuobjdump leaves the `f` of a family out.
    archs = {arch.rstrip("f") for arch in found.archs}
    assert archs == {arch.rstrip("f") for arch in toolkit.listed(file, "elf")}
    assert set(found.ptx) == set(toolkit.listed(file, "ptx"))
    scratch.mkdir()
    toolkit.run("cuobjdump", "--extract-elf", "all", str(file), cwd=scratch)
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    targets = set()
    for cubin in scratch.glob("*.cubin"):
        text = toolkit.run("nvdisasm", str(cubin), cwd=scratch)
        target = re.search(r"\.target\s+(sm_\d+[af]?)", text)
        assert target is not None
        targets.add(target[1])
        for part in re.split(r"\n\s*\.section\s+\.text\.", text)[1:]:
            name = re.match(r"[^,\s]+", part)
            assert name is not None
            code = re.split(r"\n\s*\.section\b", part, maxsplit=1)[0]
            stores, loads = (len(re.findall(rf"\b{op}\b", code)) for op in ("STL", "LDL"))
            counts[name[0], target[1]] = (stores, loads)
    assert archs == targets
    for kernel in found.kernels:
        arch = kernel.arch.rstrip("f")
        assert counts[kernel.name, arch] == (kernel.local_stores, kernel.local_loads)
    return found


def test_every_module_of_the_quickstart(built: tuple[Command, Toolkit], tmp_path: Path) -> None:
    command, toolkit = built
    modules = {}
    for installable in COMPONENTS:
        tree = Path(command.json("realize", installable)["outputs"][installable]["path"])
        document = command.json("kernels", installable)["modules"]
        component = installable.partition(".")[2]
        libraries = [p for p in sorted(tree.rglob("*.so")) if b".nv_fatbin" in p.read_bytes()]
        assert {f"{component}/{p.relative_to(tree)}" for p in libraries} == set(document)
        for path in libraries:
            found = check(path, toolkit, tmp_path / path.stem)
            modules[path.stem] = found
            assert found.archs == ("sm_120a",)
            assert found.ptx == ()
            told = document[f"{component}/{path.relative_to(tree)}"]
            assert [k["name"] for k in told["kernels"]] == [k.name for k in found.kernels]
    assert {"silu_and_mul", "fp4_kv_quant", "kv_chunk"} <= set(modules)


@pytest.mark.parametrize("mode", ["default", "size", "speed", "balance", "none"])
def test_every_compression(mode: str, toolkit: Toolkit, tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(SOURCE)
    flags = ("-Xfatbin=-compress-all", f"--compress-mode={mode}")
    toolkit.compile(source, tmp_path / "k.o", *flags)
    found = check(tmp_path / "k.o", toolkit, tmp_path / "x")
    spill = found.by_name()["_Z5spillPfi"][0]
    assert spill.stack > 800
    assert spill.local_stores > 100
    assert spill.max_threads == (64, 1, 1)
    assert found.by_name()["_Z5scaleIfEvPT_S0_i"][0].barriers == 1


def test_several_architectures_and_ptx(toolkit: Toolkit, tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(SOURCE)
    toolkit.compile(source, tmp_path / "k.o", NINETY, BLACKWELL)
    found = check(tmp_path / "k.o", toolkit, tmp_path / "x")
    assert (found.archs, found.ptx) == (("sm_120a", "sm_90a"), ("sm_120a",))
    toolkit.compile(source, tmp_path / "f.o", FAMILY)
    assert check(tmp_path / "f.o", toolkit, tmp_path / "y").archs == ("sm_120f",)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_90a", "sm_100f", "sm_120", "sm_120a"])
def test_bare_cubins(arch: str, toolkit: Toolkit, tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(SOURCE)
    toolkit.run("nvcc", "-cubin", "k.cu", "-o", "k.cubin", f"-arch={arch}", cwd=tmp_path)
    found = module(tmp_path / "k.cubin")
    assert found.archs == (arch,)
    ours = sorted((k.name, k.registers, k.stack, k.shared, k.constant) for k in found.kernels)
    assert ours == toolkit.usage(tmp_path / "k.cubin")
