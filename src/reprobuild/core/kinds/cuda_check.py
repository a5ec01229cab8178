"""The coverage contract of a cuda-module, as a derivation behind its link.

Its output is the module's own tree, so whatever uses the module waits for the check, and a module
that does not hold what it promises is in no image.
"""

from __future__ import annotations

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
    return context.add(
        Derivation(
            name=f"{context.name}:check",
            builder="builtin:cuda-check",
            inputs=(built.input("module"),),
            params={
                "forbid-ptx": not spec.ptx if spec.forbid_ptx is None else spec.forbid_ptx,
                "kernels": sorted(set(spec.kernels)),
                "require": sorted(set(spec.require or spec.arch)),
            },
        )
    )
