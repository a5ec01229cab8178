"""What each kind of step refers to, and which kinds of input may stand there."""

from __future__ import annotations

from collections.abc import Iterator

from reprobuild.core.component import (
    Component,
    CudaModuleStep,
    JoinStep,
    PythonWheelStep,
    RootfsStep,
    ScriptStep,
    Step,
    TemplateStep,
    UnpackStep,
    WheelInstallStep,
)
from reprobuild.core.flake import DebInput, Input, SdistInput, WheelInput
from reprobuild.core.reference import Ref

KeyPath = tuple[str | int, ...]

TREES = frozenset({"git", "fixture", "path"})
REPOSITORIES = frozenset({"git", "fixture"})
ARCHIVES = frozenset({"wheel", "sdist", "url"})
IMAGES = frozenset({"oci"})
ROOTS = TREES | IMAGES
ANY = ROOTS | ARCHIVES | {"deb"}


def uses(step: Step) -> Iterator[tuple[KeyPath, Ref, frozenset[str]]]:
    """Each reference of a step: its key path in the step, and the kinds of input it may be."""
    if isinstance(step, UnpackStep):
        yield ("archive",), step.archive, ARCHIVES
    elif isinstance(step, RootfsStep):
        for index, ref in enumerate(step.packages):
            yield ("packages", index), ref, frozenset({"deb"})
    elif isinstance(step, JoinStep):
        for index, place in enumerate(step.place):
            yield ("place", index, "from"), place.source, ANY
    elif isinstance(step, ScriptStep):
        for name, ref in step.inputs.items():
            yield ("inputs", name), ref, ANY
        if step.root is not None:
            yield ("root",), step.root, ROOTS
    elif isinstance(step, PythonWheelStep):
        yield ("source",), step.source, TREES
        for index, ref in enumerate(step.requires):
            yield ("requires", index), ref, frozenset({"wheel", "url"})
        if step.root is not None:
            yield ("root",), step.root, ROOTS
    elif isinstance(step, WheelInstallStep):
        yield ("wheel",), step.wheel, frozenset({"wheel", "url"})
    elif isinstance(step, TemplateStep):
        yield ("source",), step.source, TREES
        yield ("jinja",), step.jinja, TREES
        if step.root is not None:
            yield ("root",), step.root, ROOTS
    else:
        yield ("source",), step.source, TREES
        for index, unit in enumerate(step.units):
            if unit.source is not None:
                yield ("units", index, "from"), unit.source, TREES
        for key, refs in (
            ("include", step.include),
            ("system-include", step.system_include),
            ("objects", step.objects),
            ("library-path", step.library_path),
        ):
            for index, ref in enumerate(refs):
                yield (key, index), ref, TREES


def wants_one(step: Step) -> bool:
    """Whether an input of several files cannot stand in the step's references."""
    return isinstance(step, (ScriptStep, WheelInstallStep))


def uses_source(component: Component) -> bool:
    """Whether anything in the component refers to `source`."""
    refs = [
        component.result,
        *(ref for step in component.steps.values() for _, ref, _ in uses(step)),
    ]
    if component.image is not None:
        refs += [place.source for place in component.image.place]
    return any(ref.scope == "source" for ref in refs)


def count(declared: Input) -> int:
    """How many files or trees an input is."""
    if isinstance(declared, (WheelInput, SdistInput, DebInput)):
        return len(declared.wanted())
    return 1


def needs_toolchain(step: Step) -> bool:
    """Whether the step runs in its output's toolchain, because it names nothing itself."""
    if isinstance(step, (ScriptStep, PythonWheelStep, TemplateStep)):
        return step.toolchain is None and step.root is None
    return isinstance(step, CudaModuleStep) and step.toolchain is None
