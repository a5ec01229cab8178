"""The units of a cuda-module, with patterns replaced by what they match.

Which files there are is content, and evaluation knows recipes: so `lock` lists what a pattern
matches in the tree that it looks into, under a digest of that tree's recipe and of the pattern, and
evaluation reads that list. A list is of no use for another tree or another pattern.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprobuild.core.component import CudaModuleStep, Unit
from reprobuild.core.digest import Digest, document_digest
from reprobuild.core.encoding import Value
from reprobuild.core.globs import Selection
from reprobuild.core.kinds.context import Located, StepContext
from reprobuild.core.kinds.cuda_commands import tree_of

DOMAIN = "reprobuild/units/v0"


def with_units(spec: CudaModuleStep, context: StepContext) -> CudaModuleStep:
    """The module with every unit named; raises E-COMPONENT, E-LOCK-MISSING, E-LOCK-STALE.

    A file that is named by itself is compiled as it is named there, whatever patterns match it;
    of two patterns, the first counts.
    """
    if not any(unit.is_pattern for unit in spec.units):
        return spec
    named = {(tree_of(spec, u), u.path) for u in spec.units if not u.is_pattern}
    units: list[Unit] = []
    for unit in spec.units:
        if not unit.is_pattern:
            units.append(unit)
            continue
        for path in context.matching(tree_of(spec, unit), unit.path, unit.exclude):
            key = (tree_of(spec, unit), path)
            if key not in named:
                named.add(key)
                units.append(unit.model_copy(update={"path": path, "exclude": ()}))
    return spec.model_copy(update={"units": tuple(units)})


def listing_digest(tree: Located, pattern: str, exclude: Iterable[str]) -> Digest:
    """What a list of matching files is kept under."""
    document: dict[str, Value] = {
        "drv": str(tree.drv),
        "exclude": sorted(exclude),
        "output": tree.output,
        "path": tree.path,
        "pattern": pattern,
    }
    return document_digest(DOMAIN, document)


def matching(paths: Iterable[bytes], pattern: str, exclude: Iterable[str]) -> tuple[str, ...]:
    """The files that a pattern takes, sorted by their bytes; names that are no text are left."""
    wanted = Selection.of([pattern], tuple(exclude))
    found = []
    for path in sorted(paths):
        if wanted.takes(path):
            try:
                found.append(path.decode("utf-8"))
            except UnicodeDecodeError:
                continue
    return tuple(found)
