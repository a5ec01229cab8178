"""toolchains: what each is made of, and what would be built again with another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.lock import FilesPin
from reprobuild.core.reference import Ref
from reprobuild.engine.evaluate import Evaluator


@dataclass(slots=True)
class Rebuild:
    """Builds in the sandbox that stand on something: compiles of units, and all others. Of the
    others, those end early whose inputs come out the same."""

    units: int = 0
    others: int = 0


@dataclass(slots=True)
class Part:
    """One part of a toolchain, `root` or `cuda`: what it is called in the flake, the version that
    its component states, its packages as `NAME=VERSION`, and by output what stands on it."""

    ref: str
    version: str = ""
    packages: tuple[str, ...] = ()
    outputs: dict[str, Rebuild] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "from": self.ref,
            "version": self.version,
            "packages": list(self.packages),
            "rebuilds": {
                name: {"units": row.units, "others": row.others}
                for name, row in sorted(self.outputs.items())
            },
        }


Toolchains = dict[str, dict[str, Part]]
"""By name, then by part."""


def look(found: Toolchains, evaluator: Evaluator, roots: Collection[Digest]) -> None:
    """Adds to `found` what one output says: `roots` are its own derivations, in the graph of the
    evaluator. Raises what evaluating a toolchain raises."""
    reached = evaluator.graph.closure(roots)
    users: dict[Digest, list[Digest]] = {}
    for drv in reached:
        for entry in evaluator.graph.nodes[drv].inputs:
            users.setdefault(entry.drv, []).append(drv)
    for name, toolchain in evaluator.flake.toolchains.items():
        for kind, ref in (("root", toolchain.root), ("cuda", toolchain.cuda)):
            if ref is None:
                continue
            part = found.setdefault(name, {}).setdefault(kind, Part(str(ref)))
            drvs = _drvs(evaluator, ref)
            if not drvs & reached:
                continue
            if ref.scope == "components":
                part.version = evaluator.version(ref.name)
            part.packages = tuple(sorted({*part.packages, *_packages(evaluator, drvs)}))
            part.outputs[evaluator.output_name] = _standing_on(evaluator.graph, users, drvs)


def _drvs(evaluator: Evaluator, ref: Ref) -> set[Digest]:
    if ref.scope == "inputs":
        return {located.drv for located in evaluator.input(ref.name)}
    if ref.step:
        return {evaluator.step(ref.name, ref.step).drv}
    return {evaluator.component(ref.name).drv}


def _packages(evaluator: Evaluator, drvs: set[Digest]) -> set[str]:
    """Of the pinned inputs that these derivations are made of."""
    graph, pins = evaluator.graph, evaluator.lock.inputs if evaluator.lock else {}
    names = {str(graph.nodes[drv].origin.get("input", "")) for drv in graph.closure(drvs)}
    return {
        f"{file.name or file.filename}={file.version}"
        for name in names
        if isinstance(pin := pins.get(name), FilesPin)
        for file in pin.files
    }


def _standing_on(
    graph: Graph, users: Mapping[Digest, Collection[Digest]], drvs: set[Digest]
) -> Rebuild:
    found = Rebuild()
    moved: set[Digest] = set()
    fresh = list(drvs)
    while fresh:
        for user in users.get(fresh.pop(), ()):
            if user in moved:
                continue
            moved.add(user)
            fresh.append(user)
            node = graph.nodes[user]
            if node.argv:
                found.units += node.narrow is not None
                found.others += node.narrow is None
    return found
