"""The directories in which a toolchain's compiler looks for headers, asked of the compiler itself.

A derivation compiles an empty unit with a module's options and writes down the lists that the
host compiler shows (`-v`: "search starts here") in every pass that nvcc runs. It depends on the
toolchain and the options, on no source, so that modules share it. engine/narrow.py reads it: with
the list known, `#include <algorithm>` means the few files that it could name, not each whose path
ends so.
"""

from __future__ import annotations

from reprobuild.core.component import CudaModuleStep
from reprobuild.core.derivation import SANDBOX, Derivation, Hints, Input
from reprobuild.core.kinds.context import Located, StepContext
from reprobuild.core.kinds.cuda_commands import CUDA
from reprobuild.core.sandboxenv import TEMPORARY_DIRECTORY

FILE = "directories"
"""The list in the derivation's output: absolute paths as the compiler says them, one a line, and
`exit N`, how the compile ended. What is there counts only where that is 0."""
AT = "/search"
_SCRIPT = """\
: > /tmp/empty.cu
{ "$@" /tmp/empty.cu 2>&1; echo "exit $?"; } | while IFS= read -r line; do
  case $line in
    '#include "..." search starts here:' | '#include <...> search starts here:') on=1 ;;
    'End of search list.') on= ;;
    ' /'*) [ -z "${on-}" ] || echo "${line# }" ;;
    'exit '*) echo "$line" ;;
  esac
done > /out/out/directories
"""
_HINTS = Hints(memory=256 * 2**20)


def cuda_search(
    spec: CudaModuleStep, context: StepContext, tools: tuple[Input, ...], env: dict[str, str]
) -> Located:
    """The list for a module's options, without its own directories."""
    argv = (
        f"{CUDA}/bin/nvcc",
        *("-c", "-o", f"{TEMPORARY_DIRECTORY}/empty.o"),
        *("--keep", "--keep-dir", TEMPORARY_DIRECTORY),
        *(f"-std={spec.std}", "-Xcompiler=-v"),
        *("-isystem", f"{CUDA}/include"),
        *spec.flags,
        *(f"--compiler-options={flag}" for flag in spec.host_flags),
    )
    return context.add(
        Derivation(
            name="toolchain:search",
            builder=SANDBOX,
            inputs=tools,
            argv=("/bin/sh", "-eu", "-c", _SCRIPT, "sh", *argv),
            env=env,
            hints=_HINTS,
        )
    )
