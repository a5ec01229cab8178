"""Reading installables and evaluating their outputs, for the commands that need derivations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from reprobuild.core.digest import Digest
from reprobuild.core.flake import FixtureInput, PathInput
from reprobuild.core.graph import Graph
from reprobuild.core.installable import Installable, check_step, parse_installable
from reprobuild.core.kinds.context import Located
from reprobuild.core.project import Project
from reprobuild.engine.clash import clashes
from reprobuild.engine.evaluate import Evaluation, Evaluator
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.engine.imageplan import ImagePlan
    from reprobuild.engine.listing import Lister


LAYER = "layer"
"""The step that every component of an image has: `OUTPUT.COMPONENT.layer`."""


@dataclass(frozen=True, slots=True)
class Target:
    """An installable with its evaluation; `located` holds each tree that it stands for."""

    installable: Installable
    evaluation: Evaluation
    located: Mapping[str, Located]


def evaluator_of(
    app: App,
    output: str,
    graph: Graph,
    overrides: Mapping[str, Digest] = MappingProxyType({}),
    lister: Lister | None = None,
) -> Evaluator:
    """What evaluates an output of the project here, into `graph`."""
    project = app.project
    return Evaluator(
        project.flake,
        project.components,
        project.lock,
        output,
        overrides=overrides,
        contract_program=app.contract_program,
        verify_program=app.verify_program,
        graph=graph,
        lister=lister,
    )


def evaluate(
    app: App, texts: Sequence[str], overrides: Mapping[str, Digest] | None = None
) -> tuple[Graph, list[Target]]:
    """All installables over one shared graph."""
    project = app.project
    graph = Graph()
    evaluators: dict[str, Evaluator] = {}
    evaluations: dict[str, Evaluation] = {}
    targets: list[Target] = []
    for text in texts or ("",):
        installable = parse_installable(text, project.flake)
        name = installable.output
        if name not in evaluators:
            tried = _tried(app, graph) if overrides else None
            evaluators[name] = evaluator_of(app, name, graph, overrides or {}, tried)
        evaluator, component = evaluators[name], installable.component
        pins = project.lock.outputs.get(name) if project.lock else None
        if component is not None and pins is not None and pins.open:
            # What is open elsewhere in the output is no matter of this component.
            evaluation = evaluator.evaluate_part(component)
        else:
            if name not in evaluations:
                evaluations[name] = evaluator.evaluate()
            evaluation = evaluations[name]
        if component is not None and installable.step == LAYER:
            located = {str(installable): evaluator.image_layer(component)}
        else:
            located = _located(installable, evaluation, project)
        targets.append(Target(installable, evaluation, located))
    for name, evaluator in evaluators.items():
        app.check_inputs(evaluator.used, name)
    for clash in clashes(_images(targets)):
        raise clash.error()
    return graph, targets


def _images(targets: Sequence[Target]) -> dict[str, ImagePlan]:
    """The images that are asked for themselves, by output."""
    return {
        target.installable.output: target.evaluation.image
        for target in targets
        if target.installable.component is None and target.evaluation.image is not None
    }


def _tried(app: App, graph: Graph) -> Lister:
    """Lists files of trees that are there because they are tried (`--override`)."""
    from reprobuild.engine.listing import Listing, files_of

    def lister(asked: Listing) -> tuple[str, ...] | None:
        fixed = graph.nodes[asked.tree.drv].fixed
        if fixed is None or fixed.tree is None:
            return None
        return files_of(app.store, fixed.tree, asked)

    return lister


def _located(
    installable: Installable, evaluation: Evaluation, project: Project
) -> dict[str, Located]:
    component, step = installable.component, installable.step
    if component is not None and step is not None and evaluation.step is not None:
        described = project.flake.outputs[installable.output].described_by(component)
        check_step(installable, project.components[described].steps)
        return {str(installable): evaluation.step(component, step)}
    if installable.component is not None:
        return {str(installable): evaluation.components[installable.component]}
    if evaluation.image is not None:
        return {installable.output: evaluation.image.located}
    return {
        f"{installable.output}.{name}": located for name, located in evaluation.components.items()
    }


def parse_overrides(app: App, texts: Sequence[str]) -> dict[str, Digest]:
    """`INPUT=path:DIR` → the stored tree of that directory; raises E-USAGE."""
    overrides: dict[str, Digest] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or not place.startswith("path:"):
            raise ReprobuildError("E-USAGE", f"--override {text!r}: say INPUT=path:DIR", got=text)
        if name not in app.project.flake.inputs:
            raise ReprobuildError(
                "E-USAGE",
                f"--override: there is no input {name!r}",
                got=name,
                hint="inputs are " + ", ".join(sorted(app.project.flake.inputs)),
            )
        directory = Path(place.removeprefix("path:"))
        overrides[name] = app.sources.capture_checkout(directory)
    return overrides


def watched_paths(app: App) -> list[str]:
    """Directories of the project whose content decides outputs: fixtures, path inputs, and those
    of included files."""
    flake = app.project.flake
    included = {pattern.rpartition("/")[0] for pattern in flake.include}
    return sorted(included) + [
        declared.path
        for declared in flake.inputs.values()
        if isinstance(declared, (FixtureInput, PathInput))
    ]
