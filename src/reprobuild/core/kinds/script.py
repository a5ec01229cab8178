"""script: a command of the component's own, in the sandbox."""

from __future__ import annotations

from reprobuild.core.component import ScriptStep
from reprobuild.core.derivation import SANDBOX, Derivation, Input
from reprobuild.core.kinds.context import Located, StepContext, hints
from reprobuild.core.kinds.cuda_check import checked
from reprobuild.core.sandboxenv import base_environment


def script(spec: ScriptStep, context: StepContext) -> Located:
    """Runs with each input at /inputs/NAME; outputs are the directories $out (or $NAME)."""
    root = context.toolchain_root(spec.toolchain, spec.root)
    inputs: list[Input] = [root.input("root", "/")]
    inputs += [
        context.resolve(ref).input(name, f"/inputs/{name}")
        for name, ref in sorted(spec.inputs.items())
    ]
    argv = tuple(spec.argv) if spec.run is None else ("/bin/sh", "-eu", "-c", spec.run)
    env = {**base_environment(), **{name: f"/out/{name}" for name in spec.outputs}, **spec.env}
    made = context.add(
        Derivation(
            name=context.name,
            builder=SANDBOX,
            inputs=tuple(inputs),
            outputs=spec.outputs,
            argv=argv,
            env=env,
            hints=hints(spec.memory, spec.timeout, platform=spec.platform),
        )
    )
    if not (spec.require or spec.kernels or spec.forbid_ptx):
        return made
    return checked(made, context, spec.require, spec.kernels, forbid_ptx=spec.forbid_ptx)
