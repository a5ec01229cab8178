"""Command lines of a cuda-module: compile, device link, host link.

The recipe that makes objects reproducible (docs/decisions/0003-nvcc.md): one absolute path for
sources and toolkit, intermediates kept in a private directory so that their names carry no
process id, and a random seed for each unit that depends on the unit's path alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprobuild.core.component import CudaModuleStep, Unit
from reprobuild.core.reference import Ref
from reprobuild.core.sandboxenv import TEMPORARY_DIRECTORY

CUDA = "/cuda"
OBJECT = "unit.o"
DEVICE_OBJECT = "device.o"
INCLUDES = "includes"
"""The second output of a compile: what it included, as the compiler says. Nothing uses it; it
explains (engine/history.py)."""

_HOST_SUFFIXES = (".cpp", ".cc", ".cxx")


def is_host(unit: Unit) -> bool:
    """Whether a unit is for the host compiler alone."""
    return unit.path.endswith(_HOST_SUFFIXES)


def tree_of(spec: CudaModuleStep, unit: Unit) -> Ref:
    """The tree that a unit lies in."""
    return unit.source or spec.source


def place_of(spec: CudaModuleStep, unit: Unit) -> str:
    """Where the sandbox shows a unit."""
    return f"{tree_of(spec, unit).place}/{unit.path}"


def _seed(spec: CudaModuleStep, unit: Unit) -> str:
    # Relative to its tree, which may come from elsewhere; two trees must not share a seed.
    return unit.path if unit.source is None else f"{unit.source}/{unit.path}"


def compile_command(spec: CudaModuleStep, unit: Unit) -> tuple[str, ...]:
    """Makes /out/out/unit.o, and /out/includes/unit.d."""
    path = place_of(spec, unit)
    includes: list[str] = []
    for name in spec.pre_include:
        includes += ("-include", name)
    for ref in spec.include:
        includes += ("-I", ref.place)
    for ref in spec.system_include:
        includes += ("-isystem", ref.place)
    defines = [f"-D{define}" for define in (*spec.defines, *unit.defines)]
    out = ("-o", f"/out/out/{OBJECT}", "-MD", "-MF", f"/out/{INCLUDES}/unit.d")
    if is_host(unit):
        return (
            "/usr/bin/g++",
            *("-c", path, *out, f"-frandom-seed={_seed(spec, unit)}"),
            *(f"-std={spec.std}", f"-{spec.optimize}", "-fPIC"),
            *includes,
            *("-isystem", f"{CUDA}/include"),
            *defines,
            *(*spec.host_flags, *unit.host_flags),
        )
    return (
        f"{CUDA}/bin/nvcc",
        *("-dc" if spec.relocatable else "-c", path, *out),
        *_kept(_seed(spec, unit)),
        "--threads=1",
        *_gencode(spec),
        *(f"-std={spec.std}", f"-{spec.optimize}", "--compiler-options=-fPIC"),
        *includes,
        *("-isystem", f"{CUDA}/include"),
        *defines,
        *(*spec.flags, *unit.flags),
        *(f"--compiler-options={flag}" for flag in (*spec.host_flags, *unit.host_flags)),
    )


def _kept(seed: str) -> tuple[str, ...]:
    return ("--keep", "--keep-dir", TEMPORARY_DIRECTORY, f"--frandom-seed={seed}")


def _gencode(spec: CudaModuleStep) -> list[str]:
    """Code for each architecture; with PTX, the newest one's PTX beside it."""
    flags = [f"-gencode=arch=compute_{a[3:]},code={a}" for a in spec.arch]
    if spec.ptx:
        newest = spec.arch[-1][3:]
        flags.append(f"-gencode=arch=compute_{newest},code=compute_{newest}")
    return flags


def device_link_command(spec: CudaModuleStep, objects: Sequence[str]) -> tuple[str, ...]:
    """Links relocatable device code of `objects` into /out/out/device.o."""
    return (
        f"{CUDA}/bin/nvcc",
        *("-dlink", *objects, "-o", f"/out/out/{DEVICE_OBJECT}"),
        *_kept("device-link"),
        *_gencode(spec),
        "--compiler-options=-fPIC",
        *(f"-L{CUDA}/lib64", "-lcudadevrt"),
    )


def link_command(spec: CudaModuleStep, library: str, objects: Sequence[str]) -> tuple[str, ...]:
    """Links `objects`, in this order, into /out/out/LIBRARY.so."""
    return (
        "/usr/bin/g++",
        *objects,
        *(ref.place for ref in spec.objects),
        *("-shared", "-o", f"/out/out/{library}.so"),
        *(f"-L{ref.place}" for ref in spec.library_path),
        f"-L{CUDA}/lib64",
        *(("-lcudadevrt",) if spec.relocatable else ()),
        *(f"-l{name}" for name in spec.link),
        *spec.link_flags,
    )
