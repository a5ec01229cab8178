"""Cycles among steps, components and toolchains, and steps that have nothing to be built with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from reprobuild.core.component import Component, CudaModuleStep, Step
from reprobuild.core.files import FLAKE_FILE, component_file
from reprobuild.core.flake import Flake, Output
from reprobuild.core.problem import Problem
from reprobuild.core.reference import Ref
from reprobuild.core.uses import needs_toolchain, uses

MAX_CHAIN = 16

Graph = dict[str, list[str]]


def cycle_problems(flake: Flake, components: Mapping[str, Component]) -> list[Problem]:
    """A problem for a cycle, or for each step of an output that lacks a toolchain.

    All references must lead somewhere. A step without a toolchain of its own uses its output's,
    so the graph is looked at once for each output.
    """
    parts = _parts(flake, components)
    own = _cycle(flake, parts, None)
    if own is not None:
        return [own]
    problems: list[Problem] = []
    for name, output in flake.outputs.items():
        default = default_toolchain(flake, output)
        if default is None:
            problems += _lacking(flake, components, parts, name)
            continue
        # What needs nothing itself closes no ring: most toolchains are inputs.
        leads_on = any(parts.graph.get(part) for part in _toolchain(default, cuda=True))
        found = _cycle(flake, parts, default, name) if leads_on else None
        if found is not None:
            return [found]
        problems += _without_cuda(flake, components, parts, name, default)
    return problems


def default_toolchain(flake: Flake, output: Output) -> str | None:
    """What a step that names no toolchain is built with: the output's, or the only one."""
    if output.toolchain is None and len(flake.toolchains) == 1:
        return next(iter(flake.toolchains))
    return output.toolchain


def _node(ref: Ref, component: str) -> str:
    """The graph's name of what a reference leads to; empty for inputs and sources."""
    if ref.scope == "steps":
        return f"components.{component}.{ref.name}"
    if ref.scope == "components":
        return f"components.{ref.name}" + (f".{ref.step}" if ref.step else "")
    if ref.scope == "toolchains":
        return f"toolchains.{ref.name}.{ref.step}"
    return ""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the graphs of all outputs have in common, and the steps that differ in them.

    `waiting` are the steps that run in the toolchain of their output, by their node: whether they
    want its CUDA as well.
    """

    graph: Graph
    waiting: Mapping[str, bool]


def _parts(flake: Flake, components: Mapping[str, Component]) -> _Parts:
    graph: Graph = {}
    waiting: dict[str, bool] = {}
    for name, toolchain in flake.toolchains.items():
        for part, ref in (("root", toolchain.root), ("cuda", toolchain.cuda)):
            if ref is not None:
                graph[f"toolchains.{name}.{part}"] = [_node(ref, "")]
    for name, component in components.items():
        graph[f"components.{name}"] = [_node(component.result, name)]
        places = component.image.place if component.image else ()
        graph[f"layers.{name}"] = [_node(place.source, name) for place in places]
        for step_name, step in component.steps.items():
            node = f"components.{name}.{step_name}"
            graph[node] = [_node(ref, name) for _, ref, _ in uses(step)]
            chosen = getattr(step, "toolchain", None)
            if chosen is not None:
                graph[node] += _toolchain(chosen, cuda=isinstance(step, CudaModuleStep))
            elif needs_toolchain(step):
                waiting[node] = isinstance(step, CudaModuleStep)
    for node, edges in graph.items():
        graph[node] = [edge for edge in edges if edge in graph]
    return _Parts(graph, waiting)


def _toolchain(name: str, *, cuda: bool) -> list[str]:
    return [f"toolchains.{name}.{part}" for part in (("root", "cuda") if cuda else ("root",))]


def _graph(parts: _Parts, default: str | None) -> Graph:
    """The graph where the steps that name no toolchain are built with `default`."""
    if default is None:
        return parts.graph
    graph = dict(parts.graph)
    for node, cuda in parts.waiting.items():
        graph[node] = graph[node] + [e for e in _toolchain(default, cuda=cuda) if e in graph]
    return graph


def _cycle(flake: Flake, parts: _Parts, default: str | None, output: str = "") -> Problem | None:
    graph = _graph(parts, default)
    if output:
        graph = _reachable(graph, flake.outputs[output])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # The sorter names each node before the one that needs it.
        nodes = list(reversed(error.args[1]))[1:]
        first = min(range(len(nodes)), key=lambda i: nodes[i])
        ring = [*nodes[first:], *nodes[:first]]
        ring.append(ring[0])
        if len(ring) > MAX_CHAIN:
            left_out = len(ring) - MAX_CHAIN
            ring[MAX_CHAIN - 2 : -2] = [f"({left_out} more)"]
        chain = " → ".join(ring)
        with_default = f" (with toolchain `{default}` of output `{output}`)" if output else ""
        return _at(ring[0], f"this needs itself: {chain}{with_default}")
    return None


def _reachable(graph: Graph, output: Output) -> Graph:
    seen: Graph = {}
    described = [output.described_by(name) for name in output.components]
    stack = [f"{what}.{name}" for name in described for what in ("components", "layers")]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = graph[node]
            stack += graph[node]
    return seen


def _at(node: str, message: str) -> Problem:
    scope, name, *rest = node.split(".")
    if scope == "toolchains":
        return Problem(FLAKE_FILE, ("toolchains", name, *rest), message)
    path = ("steps", rest[0]) if rest else ("result",)
    return Problem(component_file(name), path, message, at="key")


def _steps_of(
    flake: Flake,
    components: Mapping[str, Component],
    parts: _Parts,
    output: str,
    default: str | None,
) -> Iterator[tuple[str, Step]]:
    for node in sorted(_reachable(_graph(parts, default), flake.outputs[output])):
        scope, name, *rest = node.split(".")
        if scope == "components" and rest:
            yield node, components[name].steps[rest[0]]


def _lacking(
    flake: Flake, components: Mapping[str, Component], parts: _Parts, output: str
) -> Iterator[Problem]:
    for node, step in _steps_of(flake, components, parts, output, None):
        if needs_toolchain(step):
            yield _at(
                node,
                f"a {step.kind} needs a toolchain; neither this step nor output `{output}` "
                "names one",
            )


def _without_cuda(
    flake: Flake,
    components: Mapping[str, Component],
    parts: _Parts,
    output: str,
    default: str,
) -> Iterator[Problem]:
    if flake.toolchains[default].cuda is not None or not any(parts.waiting.values()):
        return
    for node, step in _steps_of(flake, components, parts, output, default):
        if isinstance(step, CudaModuleStep) and step.toolchain is None:
            yield _at(
                node,
                f"toolchain `{default}` of output `{output}` has no `cuda`, "
                "which a cuda-module needs",
            )
