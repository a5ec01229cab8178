"""cuda-check: a tree of CUDA modules, passed on when it holds what it is required to.

Parameters: `require` (architectures that every module, and every kernel, must have machine code
for), `forbid-ptx`, and `kernels` (names or patterns; each must be in some module). The output is
the input tree.
"""

from __future__ import annotations

from collections.abc import Mapping

from reprobuild.adapters.builders.params import Params
from reprobuild.adapters.cubin.demangle import demangle
from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin.coverage import missing_kernels, uncovered
from reprobuild.core.cubin.table import kernel_table
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

KEYS = ("require", "forbid-ptx", "kernels")


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-CUBIN, E-KERNEL-COVERAGE."""
    read = Params("cuda-check", params, KEYS)
    if set(inputs) != {"module"}:
        raise ReprobuildError("E-PARAMS", "cuda-check takes one input, `module`")
    tree = inputs["module"]
    table = kernel_table(content, tree, inflate)
    readable = demangle(k.name for module in table.values() for k in module.kernels)
    problems = [] if table else ["there is no device code"]
    for path, module in table.items():
        lines = uncovered(
            module, read.texts("require"), readable, forbid_ptx=read.flag("forbid-ptx")
        )
        problems += [f"{path}: {line}" for line in lines]
    problems += missing_kernels(read.texts("kernels"), readable)
    if problems:
        raise ReprobuildError(
            "E-KERNEL-COVERAGE",
            f"{', '.join(table) or 'the module'} does not hold what is required of it: "
            + problems[0],
            modules=sorted(table),
            problems=problems,
            tree=str(tree),
        )
    return {"out": tree}
