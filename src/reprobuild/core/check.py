"""Whether a flake and its components fit together: references, kinds, cycles, tag patterns.

Each file has passed its own model by then. Nothing here knows lines and columns; a problem says
its file and key path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reprobuild.core.component import Component, CudaModuleStep, Place, Step
from reprobuild.core.cycles import cycle_problems
from reprobuild.core.flake import Flake, Input, Output
from reprobuild.core.pattern import FACTS, FIELDS, Pattern, Placeholder, release_values, tag_problem
from reprobuild.core.problem import Problem, did_you_mean, listed, nearest
from reprobuild.core.project import FLAKE_FILE, component_file
from reprobuild.core.reference import Ref
from reprobuild.core.uses import ANY, REPOSITORIES, TREES, uses

KeyPath = tuple[str | int, ...]


def check_project(flake: Flake, components: Mapping[str, Component]) -> list[Problem]:
    """Everything that does not fit, the flake's problems first; empty when all is well."""
    problems = list(_Checker(flake, components).run())
    if not problems:
        # Tags and cycles speak of what is referred to, so only when all references lead somewhere.
        problems = [
            *(p for name, output in flake.outputs.items() for p in _tag(name, output, components)),
            *cycle_problems(flake, components),
        ]
    return problems


class _Checker:
    def __init__(self, flake: Flake, components: Mapping[str, Component]) -> None:
        self.flake = flake
        self.components = components

    def run(self) -> Iterator[Problem]:
        flake = self.flake
        if flake.default is not None:
            yield from self.name(
                FLAKE_FILE, ("default",), "there is no output", flake.default, flake.outputs
            )
        for name, toolchain in flake.toolchains.items():
            at: KeyPath = ("toolchains", name)
            yield from self.ref(FLAKE_FILE, (*at, "root"), toolchain.root, TREES | {"oci"})
            if toolchain.cuda is not None:
                yield from self.ref(FLAKE_FILE, (*at, "cuda"), toolchain.cuda, TREES)
        for name, output in flake.outputs.items():
            yield from self.output(("outputs", name), output)
        for name, component in self.components.items():
            yield from self.component(name, component)

    # -- the flake -------------------------------------------------------------------------

    def output(self, at: KeyPath, output: Output) -> Iterator[Problem]:
        for index, name in enumerate(output.components):
            path = (*at, "components", index)
            yield from self.name(FLAKE_FILE, path, "there is no component", name, self.components)
        if output.toolchain is not None:
            path = (*at, "toolchain")
            yield from self.name(
                FLAKE_FILE, path, "there is no toolchain", output.toolchain, self.flake.toolchains
            )
        if output.image is not None and output.image.base is not None:
            path = (*at, "image", "base")
            yield from self.ref(FLAKE_FILE, path, output.image.base, TREES | {"oci"})
        for name, source in output.sources.items():
            path = (*at, "sources", name)
            yield from self.name(
                FLAKE_FILE, path, "there is no component", name, self.components, at="key"
            )
            yield from self.input_of_kind(
                FLAKE_FILE, (*path, "input"), source.input, REPOSITORIES, "a source has heads and"
            )
            component = self.components.get(name)
            if component is not None and component.input is None:
                yield Problem(
                    FLAKE_FILE,
                    path,
                    f"component `{name}` has no `input`, so it has no source to compose",
                    at="key",
                    expected=f"`input` in {component_file(name)}",
                )

    # -- the components --------------------------------------------------------------------

    def component(self, name: str, component: Component) -> Iterator[Problem]:
        file = component_file(name)
        if component.input is not None:
            yield from self.input_of_kind(
                file, ("input",), component.input, TREES, "a component's source"
            )
        for step_name, step in component.steps.items():
            yield from self.step(file, component, ("steps", step_name), step)
        yield from self.ref(file, ("result",), component.result, ANY, component)
        if component.image is not None:
            yield from self.places(file, component, ("image", "place"), component.image.place)

    def step(self, file: str, component: Component, at: KeyPath, step: Step) -> Iterator[Problem]:
        for key, ref, kinds in uses(step):
            yield from self.ref(file, (*at, *key), ref, kinds, component)
        toolchain = getattr(step, "toolchain", None)
        if toolchain is not None:
            yield from self.name(
                file, (*at, "toolchain"), "there is no toolchain", toolchain, self.flake.toolchains
            )
            found = self.flake.toolchains.get(toolchain)
            if isinstance(step, CudaModuleStep) and found is not None and found.cuda is None:
                yield Problem(
                    file,
                    (*at, "toolchain"),
                    f"toolchain `{toolchain}` has no `cuda`, which a cuda-module needs",
                )

    def places(
        self, file: str, component: Component, at: KeyPath, places: tuple[Place, ...]
    ) -> Iterator[Problem]:
        for index, place in enumerate(places):
            yield from self.ref(file, (*at, index, "from"), place.source, ANY, component)

    # -- names and references --------------------------------------------------------------

    def name(
        self,
        file: str,
        path: KeyPath,
        what: str,
        name: str,
        valid: Mapping[str, object],
        *,
        at: str = "value",
    ) -> Iterator[Problem]:
        if name not in valid:
            yield _unknown(file, path, what, name, valid, at_key=at == "key")

    def input_of_kind(
        self, file: str, path: KeyPath, name: str, kinds: frozenset[str], what: str
    ) -> Iterator[Problem]:
        inputs = self.flake.inputs
        if name not in inputs:
            yield _unknown(file, path, "there is no input", name, inputs)
        elif inputs[name].kind not in kinds:
            yield _wrong_kind(file, path, name, inputs[name], kinds)

    def ref(
        self,
        file: str,
        path: KeyPath,
        ref: Ref,
        kinds: frozenset[str],
        component: Component | None = None,
    ) -> Iterator[Problem]:
        if ref.scope == "inputs":
            yield from self.input_of_kind(file, path, ref.name, kinds, "")
        elif ref.scope == "source":
            if component is None:
                yield Problem(
                    file, path, "`source` is a component's own; a flake names components and inputs"
                )
            elif component.input is None:
                yield Problem(
                    file,
                    path,
                    "`source` needs an `input`, and this component has none",
                    expected="the key `input`, naming a git, fixture or path input",
                )
        elif ref.scope == "steps":
            if component is None:
                yield Problem(
                    file,
                    path,
                    f"`{ref}` is a component's own; write components.NAME.{ref.name}",
                )
            elif ref.name not in component.steps:
                yield _unknown(file, path, "there is no step", ref.name, component.steps)
        elif ref.scope == "components":
            other = self.components.get(ref.name)
            if other is None:
                yield _unknown(file, path, "there is no component", ref.name, self.components)
            elif ref.step and ref.step not in other.steps:
                yield _unknown(
                    file, path, f"component `{ref.name}` has no step", ref.step, other.steps
                )
        elif ref.name not in self.flake.toolchains:
            yield _unknown(file, path, "there is no toolchain", ref.name, self.flake.toolchains)
        elif ref.step not in ("root", "cuda"):
            parts = ("root", "cuda")
            yield _unknown(
                file, path, f"toolchain `{ref.name}` has no part", ref.step, dict.fromkeys(parts)
            )
        elif ref.step == "cuda" and self.flake.toolchains[ref.name].cuda is None:
            yield Problem(file, path, f"toolchain `{ref.name}` has no `cuda`")


def _unknown(
    file: str,
    path: KeyPath,
    what: str,
    name: str,
    valid: Mapping[str, object],
    *,
    at_key: bool = False,
) -> Problem:
    near = nearest(name, valid)
    there = listed(valid) or "none"
    return Problem(
        file,
        path,
        f"{what} `{name}`{did_you_mean(near)} (there is: {there})",
        nearest=near,
        at="key" if at_key else "value",
        expected=there,
        got=name,
    )


def _wrong_kind(
    file: str, path: KeyPath, name: str, input_: Input, kinds: frozenset[str]
) -> Problem:
    expected = listed(kinds)
    article = "an" if input_.kind == "oci" else "a"
    one_of = "one of: " if len(kinds) > 1 else ""
    return Problem(
        file,
        path,
        f"`{name}` is {article} {input_.kind} input; needed here is {one_of}{expected}",
        expected=expected,
        got=input_.kind,
    )


# -- tags ----------------------------------------------------------------------------------


def _tag(name: str, output: Output, components: Mapping[str, Component]) -> Iterator[Problem]:
    if output.release is None:
        return
    path: KeyPath = ("outputs", name, "release", "tag")
    try:
        pattern = Pattern.parse(output.release.tag)
    except ValueError as error:
        yield Problem(FLAKE_FILE, path, str(error), got=output.release.tag[:200])
        return
    samples = release_values(output.release)
    if output.toolchain is not None:
        samples["cuda"] = "13.3"
    for placeholder in pattern.placeholders():
        problem = _placeholder(path, placeholder, output, components, samples)
        if problem is not None:
            yield problem
            return
    for key in pattern.names():
        samples.setdefault(key, _sample(key, components))
    reason = tag_problem(
        "".join(
            part if isinstance(part, str) else samples[part.name][: part.length]
            for part in pattern.parts
        )
    )
    if reason:
        yield Problem(FLAKE_FILE, path, f"this gives no OCI tag: {reason}")


def _sample(name: str, components: Mapping[str, Component]) -> str:
    component, _, field = name.partition(".")
    return (components[component].version or "") if field == "version" else "0" * 40


def _placeholder(
    path: KeyPath,
    placeholder: Placeholder,
    output: Output,
    components: Mapping[str, Component],
    facts: Mapping[str, str],
) -> Problem | None:
    name = placeholder.name
    if not placeholder.component:
        if name in facts:
            return None
        if name in FACTS:
            lacks = "release.model-revision" if name == "model-revision" else "a toolchain"
            return Problem(FLAKE_FILE, path, f"{{{name}}} needs {lacks}, which this output lacks")
        valid = [*FACTS, *(f"{c}.{f}" for c in output.components for f in FIELDS)]
        near = nearest(name, valid)
        return Problem(
            FLAKE_FILE,
            path,
            f"unknown placeholder {{{name}}}{did_you_mean(near)} "
            f"(there is: {', '.join(FACTS)}, COMPONENT.tree, .commit, .version)",
            nearest=near,
            got=name,
        )
    if placeholder.component not in output.components:
        members = dict.fromkeys(output.components)
        return _unknown(
            FLAKE_FILE, path, "this output has no component", placeholder.component, members
        )
    if placeholder.field not in FIELDS:
        what = f"component `{placeholder.component}` has no field"
        return _unknown(FLAKE_FILE, path, what, placeholder.field, dict.fromkeys(FIELDS))
    component = components[placeholder.component]
    lacks = "version" if placeholder.field == "version" else "input"
    if getattr(component, lacks) is None:
        return Problem(
            FLAKE_FILE,
            path,
            f"{{{name}}} needs `{lacks}`, "
            f"which {component_file(placeholder.component)} does not have",
        )
    return None
