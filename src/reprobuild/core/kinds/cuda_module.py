"""cuda-module: translation units compiled one by one with nvcc, then one host link.

The recipe that makes objects reproducible (docs/decisions/0003-nvcc.md): one absolute path for
sources and toolkit, intermediates kept in a private directory so that their names carry no
process id, and a random seed for each unit that depends on the unit's path alone.
"""

from __future__ import annotations

import re

from reprobuild.core.component import CudaModuleStep
from reprobuild.core.derivation import SANDBOX, Derivation, Hints, Input
from reprobuild.core.encoding import Value
from reprobuild.core.kinds.context import Located, StepContext, hints
from reprobuild.core.kinds.cuda_check import cuda_check
from reprobuild.core.reference import Ref
from reprobuild.core.sandboxenv import TEMPORARY_DIRECTORY, base_environment
from reprobuild.errors import ReprobuildError

CUDA = "/cuda"
_HOST_SUFFIXES = (".cpp", ".cc", ".cxx")

_REFUSED: tuple[tuple[str, str], ...] = (
    (r"(--split-compile|-split-compile)", "nvcc writes its thread count into the code"),
    (r"(--split-compile-extended|-split-compile-extended)", "the same as --split-compile"),
    (r"(-G|--device-debug)$", "debug information holds temporary names"),
    (r"(-lineinfo|--generate-line-info)$", "line tables hold paths of the building machine"),
    (r"(--use-local-env|-use-local-env)$", "takes the compiler from the environment"),
    (r"(-objtemp|--objdir-as-tempdir)$", "gives other bytes than the kept intermediates used here"),
    (r"(--keep|-keep|-k|--save-temps|-save-temps|--keep-dir|-keep-dir)\b", "is set already"),
    (r"(--frandom-seed|-frandom-seed)", "is derived from each unit's path"),
    (r"(-ccbin|--compiler-bindir)", "the host compiler is the toolchain's"),
    (r"(-gencode|--generate-code|-arch|--gpu-architecture|-code|--gpu-code)\b", "say `arch`"),
    (r"(-o|--output-file|-c|--compile|-dc|-dw|-x|--run|-run|-M+[DFGP]?)$", "is set already"),
    (r"(-std|--std)\b", "say `std`"),
    (r".*-m(arch|tune|cpu)=native", "depends on the building machine's processor"),
    (r"@|--options-file|-optf", "hides options from the recipe"),
)


def _check_flags(flags: tuple[str, ...], where: str) -> None:
    for flag in flags:
        for pattern, reason in _REFUSED:
            if re.match(pattern, flag):
                raise ReprobuildError(
                    "E-CUDA-FLAG", f"{where}: the flag {flag!r} is refused: {reason}", key=where
                )


def cuda_module(spec: CudaModuleStep, context: StepContext) -> Located:
    """One derivation a unit and one for the link; the result holds `NAME.so`."""
    _check_flags(spec.flags + spec.host_flags, context.name)
    root = context.toolchain_root(spec.toolchain, None)
    cuda = context.toolchain_cuda(spec.toolchain)
    limits = hints(spec.memory, spec.timeout, Hints(memory=2 * 2**30))
    base = {**base_environment(), "PATH": f"{CUDA}/bin:/usr/bin:/bin"}
    mounts = _mounts((spec.source, *spec.include, *spec.system_include), context)
    objects: list[Input] = []
    for index, unit in enumerate(spec.units):
        built = context.add(
            Derivation(
                name=f"{context.name}:{unit.replace('/', ':')}",
                builder=SANDBOX,
                inputs=(root.input("root", "/"), cuda.input("cuda", CUDA), *mounts),
                argv=_compile(spec, unit),
                env=base,
                narrow=_narrow(spec, unit, [mount.name for mount in mounts]),
                hints=limits,
            )
        )
        objects.append(built.input(f"unit-{index}", f"/inputs/objects/{index}"))
    library = spec.name or context.name.rpartition(".")[2]
    link = (
        "/usr/bin/g++",
        *(f"{obj.at}/unit.o" for obj in objects),
        "-shared",
        "-o",
        f"/out/out/{library}.so",
        f"-L{CUDA}/lib64",
        *(f"-l{name}" for name in spec.link),
        *spec.link_flags,
    )
    linked = context.add(
        Derivation(
            name=context.name,
            builder=SANDBOX,
            inputs=(root.input("root", "/"), cuda.input("cuda", CUDA), *objects),
            argv=link,
            env=base,
        )
    )
    return cuda_check(spec, linked, context)


def _mounts(refs: tuple[Ref, ...], context: StepContext) -> tuple[Input, ...]:
    """Each place once, outer directories first, those inside another's mount left out."""
    kept: list[Ref] = []
    for ref in sorted(set(refs), key=lambda r: (r.place.count("/"), r.place)):
        if not any(ref.place == k.place or ref.place.startswith(k.place + "/") for k in kept):
            kept.append(ref)
    return tuple(context.resolve(ref).input(str(ref), ref.place) for ref in kept)


_IMPLICIT = ("stdc-predef.h",)
_IMPLICIT_CUDA = (
    "cuda_runtime.h",
    "crt/host_runtime.h",
    "crt/device_runtime.h",
    "fatbinary_section.h",
)
"""What gcc, and the files that nvcc writes between its passes, include without being told."""

_PRE_INCLUDE = frozenset(("-include", "--pre-include", "-imacros"))


def _narrow(spec: CudaModuleStep, unit: str, mounts: list[str]) -> Value:
    """What a unit's compile starts reading at; only the module's own trees are cut, the toolchain
    stays whole."""
    flags = (*spec.flags, *spec.host_flags)
    starts = [f"{spec.source.place}/{unit}", *_IMPLICIT]
    if not unit.endswith(_HOST_SUFFIXES):
        starts += _IMPLICIT_CUDA
    for flag, following in zip(flags, (*flags[1:], ""), strict=False):
        name, equals, value = flag.partition("=")
        if name in _PRE_INCLUDE:
            starts.append(value if equals else following)
    defines = [*spec.defines, *(f[2:] for f in flags if f.startswith("-D") and len(f) > 2)]
    return {"defines": defines, "inputs": list(mounts), "starts": starts}


def _compile(spec: CudaModuleStep, unit: str) -> tuple[str, ...]:
    path = f"{spec.source.place}/{unit}"
    includes: list[str] = []
    for ref in spec.include:
        includes += ("-I", ref.place)
    for ref in spec.system_include:
        includes += ("-isystem", ref.place)
    defines = [f"-D{define}" for define in spec.defines]
    if unit.endswith(_HOST_SUFFIXES):
        return (
            "/usr/bin/g++",
            *("-c", path, "-o", "/out/out/unit.o", f"-frandom-seed={unit}"),
            *(f"-std={spec.std}", f"-{spec.optimize}", "-fPIC"),
            *includes,
            *("-isystem", f"{CUDA}/include"),
            *defines,
            *spec.host_flags,
        )
    gencode = [f"-gencode=arch=compute_{a[3:]},code={a}" for a in spec.arch]
    return (
        f"{CUDA}/bin/nvcc",
        *("-c", path, "-o", "/out/out/unit.o"),
        *("--keep", "--keep-dir", TEMPORARY_DIRECTORY, f"--frandom-seed={unit}", "--threads=1"),
        *gencode,
        *(f"-std={spec.std}", f"-{spec.optimize}", "--compiler-options=-fPIC"),
        *includes,
        *("-isystem", f"{CUDA}/include"),
        *defines,
        *spec.flags,
        *(f"--compiler-options={flag}" for flag in spec.host_flags),
    )
