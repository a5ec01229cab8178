"""cuda-module: translation units compiled one by one with nvcc, a device link where device code
is relocatable, and one host link."""

from __future__ import annotations

from reprobuild.core.component import CudaModuleStep, Unit
from reprobuild.core.derivation import SANDBOX, Derivation, Hints, Input
from reprobuild.core.encoding import Value
from reprobuild.core.kinds import cuda_commands as commands
from reprobuild.core.kinds.context import Located, StepContext, hints
from reprobuild.core.kinds.cuda_check import cuda_check
from reprobuild.core.kinds.cuda_flags import check_flags
from reprobuild.core.kinds.cuda_search import AT, cuda_search
from reprobuild.core.kinds.cuda_units import with_units
from reprobuild.core.reference import Ref
from reprobuild.core.sandboxenv import base_environment

UNIT_HINTS = Hints(memory=2 * 2**30)
"""For a unit of which nothing is known yet: what it took is on record from then on."""
_LINK_HINTS = Hints(memory=512 * 2**20)


def cuda_module(spec: CudaModuleStep, context: StepContext) -> Located:
    """One derivation a unit, one for each link and one for the check; the result has `NAME.so`."""
    check_flags(context.name, spec.flags, spec.host_flags, spec.link_flags)
    spec = with_units(spec, context)
    for unit in spec.units:
        check_flags(f"{context.name}, unit {unit.path}", unit.flags, unit.host_flags)
    tools = (
        context.toolchain_root(spec.toolchain, None).input("root", "/"),
        context.toolchain_cuda(spec.toolchain).input("cuda", commands.CUDA),
    )
    env = {**base_environment(), "PATH": f"{commands.CUDA}/bin:/usr/bin:/bin"}
    search = cuda_search(spec, context, tools, env).input(_SEARCH, AT)
    objects = [
        _unit(spec, unit, context, (*tools, search), env).input(
            f"unit-{index}", f"/inputs/objects/{index}"
        )
        for index, unit in enumerate(spec.units)
    ]
    names = [f"{found.at}/{commands.OBJECT}" for found in objects]
    if spec.relocatable:
        device = context.add(
            Derivation(
                name=f"{context.name}:device-link",
                builder=SANDBOX,
                inputs=(*tools, *objects),
                argv=commands.device_link_command(
                    spec,
                    [n for n, u in zip(names, spec.units, strict=True) if not commands.is_host(u)],
                ),
                env=env,
                hints=hints(None, None, _LINK_HINTS, spec.platform),
            )
        )
        objects.append(device.input("device", "/inputs/objects/device"))
        names.append(f"/inputs/objects/device/{commands.DEVICE_OBJECT}")
    library = spec.name or context.name.rpartition(".")[2]
    linked = context.add(
        Derivation(
            name=context.name,
            builder=SANDBOX,
            inputs=(*tools, *objects, *_mounts((*spec.objects, *spec.library_path), context)),
            argv=commands.link_command(spec, library, names),
            env=env,
            hints=hints(None, None, _LINK_HINTS, spec.platform),
        )
    )
    return cuda_check(spec, linked, context)


def _unit(
    spec: CudaModuleStep,
    unit: Unit,
    context: StepContext,
    tools: tuple[Input, ...],
    env: dict[str, str],
) -> Located:
    refs = (commands.tree_of(spec, unit), *spec.include, *spec.system_include)
    mounts = _mounts(refs, context)
    return context.add(
        Derivation(
            name=f"{context.name}:{unit.path.replace('/', ':')}",
            builder=SANDBOX,
            inputs=(*tools, *mounts),
            outputs=("out", commands.INCLUDES),
            argv=commands.compile_command(spec, unit),
            env=env,
            narrow=_narrow(spec, unit, [mount.name for mount in mounts]),
            hints=hints(unit.memory or spec.memory, spec.timeout, UNIT_HINTS, spec.platform),
        )
    )


def _mounts(refs: tuple[Ref, ...], context: StepContext) -> tuple[Input, ...]:
    """Each place once, outer directories first, those inside another's mount left out."""
    kept: list[Ref] = []
    for ref in sorted(set(refs), key=lambda r: (r.place.count("/"), r.place)):
        if not any(ref.place == k.place or ref.place.startswith(k.place + "/") for k in kept):
            kept.append(ref)
    return tuple(context.resolve(ref).input(str(ref), ref.place) for ref in kept)


_SEARCH = "search"
_IMPLICIT = ("stdc-predef.h",)
_IMPLICIT_CUDA = (
    "cuda_runtime.h",
    "crt/host_runtime.h",
    "crt/device_runtime.h",
    "fatbinary_section.h",
)
"""What gcc, and the files that nvcc writes between its passes, include without being told."""


def _narrow(spec: CudaModuleStep, unit: Unit, mounts: list[str]) -> Value:
    """What a unit's compile starts reading at, for engine/narrow.py; only the module's own trees
    are cut, the toolchain stays whole."""
    starts = [commands.place_of(spec, unit), *spec.pre_include, *_IMPLICIT]
    if not commands.is_host(unit):
        starts += _IMPLICIT_CUDA
    directories = [ref.place for ref in (*spec.include, *spec.system_include)]
    return {
        "defines": [*spec.defines, *unit.defines],
        "directories": directories,
        "inputs": list(mounts),
        "search": _SEARCH,
        "starts": starts,
    }
