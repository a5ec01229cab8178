"""python-wheel: a source built by its PEP 517 backend with pinned requirements, no network."""

from __future__ import annotations

from reprobuild.core.component import PythonWheelStep
from reprobuild.core.derivation import SANDBOX, Derivation, Input
from reprobuild.core.kinds.context import Located, StepContext, hints
from reprobuild.core.kinds.pep517 import DRIVER
from reprobuild.core.kinds.trees import install_wheel, unpack_one
from reprobuild.core.sandboxenv import base_environment


def python_wheel(spec: PythonWheelStep, context: StepContext) -> Located:
    """Two derivations: the wheel, and the tree it installs.

    The installed tree forgets the wheel's own accidents (member order, zip flags), so whatever
    the backend leaves in them does not reach the image.
    """
    root = context.toolchain_root(spec.toolchain, spec.root)
    inputs: list[Input] = [
        root.input("root", "/"),
        context.resolve(spec.source).input("source", "/inputs/source"),
    ]
    paths: list[str] = []
    wheels = [wheel for ref in spec.requires for wheel in context.resolve_all(ref)]
    for index, wheel in enumerate(wheels):
        tree = (
            unpack_one(f"{context.name}:requires-{index}", wheel, context)
            if wheel.filename.endswith(".whl")
            else wheel
        )
        paths.append(f"/inputs/requires/{index}")
        inputs.append(tree.input(f"requires-{index}", paths[-1]))
    env = {**base_environment(), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    version = spec.version or context.version
    if version:
        # setuptools_scm would otherwise write the date of the build into the version.
        env["SETUPTOOLS_SCM_PRETEND_VERSION"] = version
    env.update(spec.env)
    built = context.add(
        Derivation(
            name=f"{context.name}:wheel",
            builder=SANDBOX,
            inputs=tuple(inputs),
            argv=("/usr/bin/python3", "-I", "-c", DRIVER, "/inputs/source", spec.backend, *paths),
            env=env,
            hints=hints(spec.memory, spec.timeout, platform=spec.platform),
        )
    )
    return install_wheel(context.name, built, spec.prefix, spec.scripts, context)
