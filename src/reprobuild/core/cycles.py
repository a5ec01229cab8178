"""Cycles among steps, components and toolchains, and steps that have nothing to be built with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    own = _cycle(flake, components, None)
    if own is not None:
        return [own]
    problems: list[Problem] = []
    for name, output in flake.outputs.items():
        default = default_toolchain(flake, output)
        if default is None:
            problems += _lacking(flake, components, name)
            continue
        found = _cycle(flake, components, default, name)
        if found is not None:
            return [found]
        problems += _without_cuda(flake, components, name, default)
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


def _graph(flake: Flake, components: Mapping[str, Component], default: str | None) -> Graph:
    graph: Graph = {}
    for name, toolchain in flake.toolchains.items():
        for part, ref in (("root", toolchain.root), ("cuda", toolchain.cuda)):
            if ref is not None:
                graph[f"toolchains.{name}.{part}"] = [_node(ref, "")]
    for name, component in components.items():
        graph[f"components.{name}"] = [_node(component.result, name)]
        places = component.image.place if component.image else ()
        graph[f"layers.{name}"] = [_node(place.source, name) for place in places]
        for step_name, step in component.steps.items():
            edges = [_node(ref, name) for _, ref, _ in uses(step)]
            chosen = getattr(step, "toolchain", None) or (
                default if needs_toolchain(step) else None
            )
            if chosen is not None:
                edges.append(f"toolchains.{chosen}.root")
                if isinstance(step, CudaModuleStep):
                    edges.append(f"toolchains.{chosen}.cuda")
            graph[f"components.{name}.{step_name}"] = edges
    return {node: [edge for edge in edges if edge in graph] for node, edges in graph.items()}


def _cycle(
    flake: Flake, components: Mapping[str, Component], default: str | None, output: str = ""
) -> Problem | None:
    graph = _graph(flake, components, default)
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
    flake: Flake, components: Mapping[str, Component], output: str, default: str | None
) -> Iterator[tuple[str, Step]]:
    for node in sorted(_reachable(_graph(flake, components, default), flake.outputs[output])):
        scope, name, *rest = node.split(".")
        if scope == "components" and rest:
            yield node, components[name].steps[rest[0]]


def _lacking(flake: Flake, components: Mapping[str, Component], output: str) -> Iterator[Problem]:
    for node, step in _steps_of(flake, components, output, None):
        if needs_toolchain(step):
            yield _at(
                node,
                f"a {step.kind} needs a toolchain; neither this step nor output `{output}` "
                "names one",
            )


def _without_cuda(
    flake: Flake, components: Mapping[str, Component], output: str, default: str
) -> Iterator[Problem]:
    if flake.toolchains[default].cuda is not None:
        return
    for node, step in _steps_of(flake, components, output, default):
        if isinstance(step, CudaModuleStep) and step.toolchain is None:
            yield _at(
                node,
                f"toolchain `{default}` of output `{output}` has no `cuda`, "
                "which a cuda-module needs",
            )
