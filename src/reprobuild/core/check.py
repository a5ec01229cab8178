"""Whether a flake and its components fit together: references, kinds of input, names.

Each file has passed its own model by then. Nothing here knows lines and columns; a problem says
its file and key path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from reprobuild.core.abi import join, output_parts
from reprobuild.core.checktag import tag_problems
from reprobuild.core.component import Component, CudaModuleStep, Step
from reprobuild.core.cycles import cycle_problems
from reprobuild.core.files import FLAKE_FILE, component_file
from reprobuild.core.flake import Flake, Input, Output
from reprobuild.core.problem import Problem, nearest_of, shown
from reprobuild.core.reference import Ref
from reprobuild.core.uses import (
    ANY,
    IMAGES,
    REPOSITORIES,
    ROOTS,
    TREES,
    count,
    uses,
    uses_source,
    wants_one,
)
from reprobuild.errors import ReprobuildError

KeyPath = tuple[str | int, ...]
PARTS = dict.fromkeys(("root", "cuda"))


def check_project(flake: Flake, components: Mapping[str, Component]) -> list[Problem]:
    """Everything that does not fit, the flake's problems first; empty when all is well."""
    problems = list(_Checker(flake, components).run())
    if not problems:
        # What follows speaks of what is referred to, so all references must lead somewhere.
        problems = cycle_problems(flake, components)
    if not problems:
        for name, output in flake.outputs.items():
            named = {n: components[file] for n, file in output.variants.items()}
            problems += tag_problems(flake, name, output, {**components, **named})
        problems += _without_effect(flake, components)
        problems += _disjoint(flake, components)
    return problems


def _disjoint(flake: Flake, components: Mapping[str, Component]) -> Iterator[Problem]:
    """Components of one output that are built for different ABIs."""
    for name, output in flake.outputs.items():
        try:
            join(output_parts(output, components))
        except ReprobuildError as error:
            path: KeyPath = ("outputs", name, "components")
            yield Problem(FLAKE_FILE, path, f"these cannot be put together: {error.message}")


def _without_effect(flake: Flake, components: Mapping[str, Component]) -> Iterator[Problem]:
    """Heads that would be listed in labels, and be in nothing."""
    for output_name, output in flake.outputs.items():
        for name in output.sources:
            if not uses_source(components[output.described_by(name)]):
                yield Problem(
                    FLAKE_FILE,
                    ("outputs", output_name, "sources", name),
                    f"component `{name}` uses no `source`, so this would have no effect",
                    at="key",
                    expected=f"a use of `source` in {component_file(name)}",
                )


@dataclass(frozen=True, slots=True)
class _Use:
    """A place where a reference stands, and what may stand there."""

    file: str
    path: KeyPath
    kinds: frozenset[str]
    component: str = ""
    one: bool = False


class _Checker:
    def __init__(self, flake: Flake, components: Mapping[str, Component]) -> None:
        self.flake = flake
        self.components = components

    def run(self) -> Iterator[Problem]:
        flake = self.flake
        if flake.default is not None and flake.default not in flake.outputs:
            what = "there is no output"
            yield unknown(FLAKE_FILE, ("default",), what, flake.default, flake.outputs)
        for name, toolchain in flake.toolchains.items():
            at: KeyPath = ("toolchains", name)
            yield from self.ref(toolchain.root, _Use(FLAKE_FILE, (*at, "root"), ROOTS))
            if toolchain.cuda is not None:
                yield from self.ref(toolchain.cuda, _Use(FLAKE_FILE, (*at, "cuda"), TREES))
        for name, output in flake.outputs.items():
            yield from self.output(("outputs", name), output)
        for name, component in self.components.items():
            yield from self.component(name, component)

    # -- the flake -------------------------------------------------------------------------

    def output(self, at: KeyPath, output: Output) -> Iterator[Problem]:
        for index, name in enumerate(output.components):
            if name not in self.components and name not in output.variants:
                yield self.no_component((*at, "components", index), name)
        for name, described in output.variants.items():
            if described not in self.components:
                yield self.no_component((*at, "variants", name), described)
            if name not in output.components:
                what = "this output has no component"
                yield unknown(
                    FLAKE_FILE,
                    (*at, "variants", name),
                    what,
                    name,
                    dict.fromkeys(output.components),
                )
        if output.toolchain is not None:
            yield from self.toolchain(FLAKE_FILE, (*at, "toolchain"), output.toolchain)
        base = output.image.base if output.image else None
        if base is not None:
            path = (*at, "image", "base")
            if base.scope == "inputs":
                yield from self.ref(base, _Use(FLAKE_FILE, path, IMAGES))
            else:
                yield Problem(
                    FLAKE_FILE,
                    path,
                    f"`{base}` cannot be a base; that is an image, named inputs.NAME, and what "
                    "components bring comes as layers",
                    expected="inputs.NAME of an oci input",
                    got=str(base),
                )
        for gate_name, gate in output.gates.items():
            if gate.of is not None and gate.of not in self.flake.outputs:
                what, path = "there is no output", (*at, "gates", gate_name, "of")
                yield unknown(FLAKE_FILE, path, what, gate.of, self.flake.outputs)
        for name, source in output.sources.items():
            path = (*at, "sources", name)
            yield from self.input((*path, "input"), source.input, REPOSITORIES)
            if name not in self.components:
                yield self.no_component(path, name, at_key=True)

    # -- the components --------------------------------------------------------------------

    def component(self, name: str, component: Component) -> Iterator[Problem]:
        file = component_file(name)
        if component.input is not None and component.input not in self.flake.inputs:
            what = "there is no input"
            yield unknown(file, ("input",), what, component.input, self.flake.inputs)
        for step_name, step in component.steps.items():
            yield from self.step(file, name, ("steps", step_name), step)
        yield from self.ref(component.result, _Use(file, ("result",), ANY, name))
        for index, place in enumerate(component.image.place if component.image else ()):
            path = ("image", "place", index, "from")
            yield from self.ref(place.source, _Use(file, path, ANY, name))
        for check_name, check in component.checks.items():
            at: KeyPath = ("checks", check_name)
            yield from self.ref(check.module, _Use(file, (*at, "module"), TREES, name))
            for use, ref in check.uses.items():
                yield from self.ref(ref, _Use(file, (*at, "uses", use), TREES, name))

    def step(self, file: str, component: str, at: KeyPath, step: Step) -> Iterator[Problem]:
        for key, ref, kinds in uses(step):
            use = _Use(file, (*at, *key), kinds, component, wants_one(step))
            yield from self.ref(ref, use)
        toolchain = getattr(step, "toolchain", None)
        if toolchain is not None:
            yield from self.toolchain(file, (*at, "toolchain"), toolchain)
            found = self.flake.toolchains.get(toolchain)
            if isinstance(step, CudaModuleStep) and found is not None and found.cuda is None:
                message = f"toolchain `{toolchain}` has no `cuda`, which a cuda-module needs"
                yield Problem(file, (*at, "toolchain"), message)

    # -- names and references --------------------------------------------------------------

    def no_component(self, path: KeyPath, name: str, *, at_key: bool = False) -> Problem:
        what = "there is no component"
        return unknown(FLAKE_FILE, path, what, name, self.components, at_key=at_key)

    def toolchain(self, file: str, path: KeyPath, name: str) -> Iterator[Problem]:
        if name not in self.flake.toolchains:
            yield unknown(file, path, "there is no toolchain", name, self.flake.toolchains)

    def input(self, path: KeyPath, name: str, kinds: frozenset[str]) -> Iterator[Problem]:
        yield from self.ref(Ref("inputs", name), _Use(FLAKE_FILE, path, kinds))

    def ref(self, ref: Ref, use: _Use) -> Iterator[Problem]:
        """What is wrong with one reference."""
        if ref.scope == "inputs":
            yield from self.to_input(ref.name, use)
        elif ref.scope in ("source", "steps") and not use.component:
            yield Problem(
                use.file,
                use.path,
                f"`{ref}` belongs to a component; a flake names inputs.NAME, components.NAME "
                "or components.NAME.STEP",
            )
        elif ref.scope == "source":
            yield from self.to_source(use)
        elif ref.scope == "steps":
            steps = self.components[use.component].steps
            if ref.name not in steps:
                yield unknown(use.file, use.path, "there is no step", ref.name, steps)
        elif ref.scope == "components":
            other = self.components.get(ref.name)
            if other is None:
                what = "there is no component"
                yield unknown(use.file, use.path, what, ref.name, self.components)
            elif ref.step and ref.step not in other.steps:
                what = f"component `{ref.name}` has no step"
                yield unknown(use.file, use.path, what, ref.step, other.steps)
        elif ref.name not in self.flake.toolchains:
            yield from self.toolchain(use.file, use.path, ref.name)
        elif ref.step not in PARTS:
            what = f"toolchain `{ref.name}` has no part"
            yield unknown(use.file, use.path, what, ref.step, PARTS)
        elif ref.step == "cuda" and self.flake.toolchains[ref.name].cuda is None:
            yield Problem(use.file, use.path, f"toolchain `{ref.name}` has no `cuda`")

    def to_input(self, name: str, use: _Use) -> Iterator[Problem]:
        found = self.flake.inputs.get(name)
        if found is None:
            yield unknown(use.file, use.path, "there is no input", name, self.flake.inputs)
        elif found.kind not in use.kinds:
            yield _wrong_kind(use, name, found)
        elif use.one and count(found) > 1:
            yield Problem(
                use.file,
                use.path,
                f"input `{name}` is {count(found)} files, and one is wanted here; "
                "unpack or join them in a step of their own",
                expected="one file or tree",
                got=f"{count(found)} files",
            )

    def to_source(self, use: _Use) -> Iterator[Problem]:
        """`source` is what some output composes for the component, or its `input`."""
        component = self.components[use.component]
        names = {
            output.sources[use.component].input
            for output in self.flake.outputs.values()
            if use.component in output.sources
        }
        if component.input is not None:
            names.add(component.input)
        if not names:
            yield Problem(
                use.file,
                use.path,
                "`source` needs an `input`: this component has none, and no output gives it one",
                expected="the key `input`, or a table outputs.NAME.sources." + use.component,
            )
        for name in sorted(names):
            found = self.flake.inputs.get(name)
            if found is not None and found.kind not in use.kinds:
                yield _wrong_kind(use, name, found)


def unknown(
    file: str,
    path: KeyPath,
    what: str,
    name: str,
    valid: Mapping[str, object],
    *,
    at_key: bool = False,
) -> Problem:
    """The problem of a name that leads nowhere; `what` begins the sentence."""
    near, there, message = nearest_of(what, name, valid)
    at: Literal["key", "value"] = "key" if at_key else "value"
    return Problem(file, path, message, nearest=near, at=at, expected=there, got=shown(name)[1:-1])


def _wrong_kind(use: _Use, name: str, found: Input) -> Problem:
    expected = ", ".join(sorted(use.kinds))
    one_of = "one of: " if len(use.kinds) > 1 else ""
    article = "an" if found.kind in ("oci", "sdist") else "a"
    return Problem(
        use.file,
        use.path,
        f"`{name}` is {article} {found.kind} input; needed here is {one_of}{expected}",
        expected=expected,
        got=found.kind,
    )
