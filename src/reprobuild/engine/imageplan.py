"""The derivations of an image: one layer a component, the statement's layer, and the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from reprobuild.core.component import Component, RootfsStep
from reprobuild.core.derivation import Derivation, Input
from reprobuild.core.encoding import Value
from reprobuild.core.flake import Output
from reprobuild.core.graph import Graph
from reprobuild.core.kinds.context import Located
from reprobuild.core.kinds.labels import ComponentFacts, release_labels, statement, tag_values
from reprobuild.core.pattern import Pattern
from reprobuild.core.sandboxenv import SOURCE_DATE_EPOCH
from reprobuild.errors import ReprobuildError

STATEMENT_COMPONENT = "statement"


class OutputView(Protocol):
    """What is asked of the evaluation of one output."""

    output_name: str
    graph: Graph
    components: Mapping[str, Component]
    contract_program: str

    @property
    def output(self) -> Output:
        """The output's declaration."""
        ...

    def layer(self, component: str, /) -> Located | None:
        """The tree a component puts into images, or None."""
        ...

    def facts(self, component: str, /) -> ComponentFacts:
        """What labels and statement say of a component."""
        ...

    def input(self, name: str, /) -> tuple[Located, ...]:
        """What an input fetches."""
        ...


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """An image that can be realized: its derivation, reference and the labels known so far."""

    located: Located
    reference: str
    labels: Mapping[str, str]
    layers: tuple[str, ...]


def plan_image(evaluator: OutputView, dirty: tuple[str, ...]) -> ImagePlan:
    """The image of an output; raises E-FLAKE for a tag that cannot be rendered."""
    output = evaluator.output
    release, config = output.release, output.image
    assert release is not None
    assert config is not None
    graph = evaluator.graph
    trees = {
        name: tree for name in output.components if (tree := evaluator.layer(name)) is not None
    }
    facts = [replace(evaluator.facts(name), drv=tree.drv) for name, tree in trees.items()]
    reference = f"{release.repository}:{_tag(evaluator, release.tag, facts)}"
    labels = release_labels(output, facts, reference, dirty)

    stated = Located(
        graph.add(
            Derivation(
                name=f"{evaluator.output_name}.statement",
                builder="builtin:statement",
                inputs=tuple(Input(f"tree-{n}", t.drv, t.output) for n, t in trees.items()),
                params={
                    "document": statement(evaluator.output_name, output, facts, reference),
                    "program": evaluator.contract_program,
                },
            )
        )
    )
    layered = {**trees, STATEMENT_COMPONENT: stated}
    base = evaluator.input(config.base.name)[0] if config.base is not None else None
    beneath = [
        tree.input(f"below-{index}")
        for index, tree in enumerate(t for n, t in trees.items() if _is_root(evaluator, n))
    ]
    layers = [_layer(evaluator, name, tree, base, beneath) for name, tree in layered.items()]
    env: dict[str, str] = {}
    for name in trees:
        image = evaluator.components[name].image
        env.update(image.env if image else {})
    env.update(config.env)
    inputs: list[Input] = []
    for index, (layer, tree) in enumerate(zip(layers, layered.values(), strict=True)):
        inputs += [layer.input(f"layer-{index}"), tree.input(f"tree-{index}")]
        inputs.append(Input(f"placed-{index}", layer.drv, "tree"))
    if base is not None:
        inputs.append(base.input("base-0"))
    tree_labels: dict[str, Value] = {
        f"{release.label_prefix}.{name}.tree": f"tree-{index}" for index, name in enumerate(trees)
    }
    params: dict[str, Value] = {
        "architecture": "amd64",
        "components": list(layered),
        "config": {
            "cmd": list(config.cmd),
            "entrypoint": list(config.entrypoint),
            "env": env,
            "labels": labels,
            "user": config.user,
            "workdir": config.workdir,
        },
        "created": f"{release.date.isoformat()}T00:00:00Z",
        "reference": reference,
        "tree_labels": tree_labels,
    }
    image_drv = graph.add(
        Derivation(
            name=f"{evaluator.output_name}.image",
            builder="builtin:image",
            inputs=tuple(inputs),
            params=params,
        )
    )
    return ImagePlan(Located(image_drv), reference, labels, tuple(layered))


def _is_root(evaluator: OutputView, component: str) -> bool:
    """Whether a component brings a root file system, whose links later layers must respect."""
    steps = evaluator.components[component].steps.values()
    return any(isinstance(step, RootfsStep) for step in steps)


def _owners(evaluator: OutputView, name: str) -> dict[str, Value]:
    component = evaluator.components.get(name)
    if component is None or component.image is None:
        return {}
    return {
        path: owner.model_dump(exclude_none=True) for path, owner in component.image.owners.items()
    }


def _layer(
    evaluator: OutputView,
    name: str,
    tree: Located,
    base: Located | None,
    beneath: Sequence[Input],
) -> Located:
    """A component's layer. It looks at what lies beneath only where there may be links to follow
    (a merged /usr), so a change of one component leaves the other layers alone."""
    inputs = [tree.input("tree")]
    if base is not None:
        inputs.append(base.input("base-0"))
    inputs += [entry for entry in beneath if entry.drv != tree.drv]
    component = evaluator.components.get(name)
    image = component.image if component is not None else None
    roots = [n for n in evaluator.output.components if n != name and _is_root(evaluator, n)]
    params: dict[str, Value] = {
        # A directory that a root made special stays so when a layer puts something into it.
        "beneath_owners": {p: o for root in roots for p, o in _owners(evaluator, root).items()},
        "compression": "gzip",
        "level": 6,
        # Not the release's date: a layer must not change because a release is of another day.
        "mtime": SOURCE_DATE_EPOCH,
        "name": name,
        "owners": _owners(evaluator, name),
        "prefix": "",
        "replace": list(image.replace if image else ()),
    }
    derivation = Derivation(
        name=f"{evaluator.output_name}.{name}.layer",
        builder="builtin:layer",
        inputs=tuple(inputs),
        outputs=("out", "tree"),
        params=params,
    )
    return Located(evaluator.graph.add(derivation))


def _tag(evaluator: OutputView, text: str, facts: Sequence[ComponentFacts]) -> str:
    release = evaluator.output.release
    assert release is not None
    values = tag_values(release, facts)
    where = f"outputs.{evaluator.output_name}.release.tag"
    try:
        return Pattern.parse(text).render(values)
    except (KeyError, ValueError) as error:
        raise ReprobuildError("E-FLAKE", f"{where}: {error}", key=where) from error
