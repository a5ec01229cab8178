"""The coverage contract of kernels, as a derivation behind what makes them.

Its output is the tree that is checked, so whatever uses the kernels waits for the check, and what
does not hold what it promises is in no image.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprobuild.core.component import CudaModuleStep
from reprobuild.core.derivation import Derivation
from reprobuild.core.kinds.context import Located, StepContext
from reprobuild.core.kinds.cuda_commands import is_host


def cuda_check(spec: CudaModuleStep, built: Located, context: StepContext) -> Located:
    """The same tree, once it holds what `require`, `forbid-ptx` and `kernels` say.

    Without `require`, code for every architecture of `arch` must be there. A module of host units
    alone has no device code to check, unless something is required of it by name.
    """
    stated = spec.require or spec.kernels
    if not stated and not spec.objects and all(is_host(unit) for unit in spec.units):
        return built
    forbid_ptx = not spec.ptx if spec.forbid_ptx is None else spec.forbid_ptx
    return checked(built, context, spec.require or spec.arch, spec.kernels, forbid_ptx=forbid_ptx)


def checked(
    built: Located,
    context: StepContext,
    require: Iterable[str],
    kernels: Iterable[str],
    *,
    forbid_ptx: bool,
) -> Located:
    """A tree, once every module and kernel in it is made for `require`, and `kernels` are there."""
    return context.add(
        Derivation(
            name=f"{context.name}:check",
            builder="builtin:cuda-check",
            inputs=(built.input("module"),),
            params={
                "forbid-ptx": forbid_ptx,
                "kernels": sorted(set(kernels)),
                "require": sorted(set(require)),
            },
        )
    )
