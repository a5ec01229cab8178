"""The derivations of an image: one layer a component, the statement's layer, and the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from reprobuild.core.component import Component, RootfsStep
from reprobuild.core.derivation import Derivation, Input
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.flake import Output
from reprobuild.core.graph import Graph
from reprobuild.core.kinds.context import Located
from reprobuild.core.kinds.labels import ComponentFacts, labels_of, statement, tag_values
from reprobuild.core.kinds.origins import origins
from reprobuild.core.pattern import Pattern
from reprobuild.core.sandboxenv import SOURCE_DATE_EPOCH
from reprobuild.errors import ReprobuildError

STATEMENT_COMPONENT = "statement"
DEFAULT_LEVEL = 6


class OutputView(Protocol):
    """What is asked of the evaluation of one output."""

    output_name: str
    graph: Graph
    components: Mapping[str, Component]
    contract_program: str
    verify_program: str

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

    def git_source(self, component: str, /) -> Located | None:
        """A component's source where it is a git tree, else None."""
        ...


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """An image that can be realized: its derivation, reference and the labels known so far."""

    located: Located
    reference: str
    labels: Mapping[str, str]
    layers: tuple[str, ...]
    stated: Mapping[str, Digest] = field(default_factory=dict)
    """By component: the drv that labels carry, of what it puts into the image."""


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
    reference = f"{release.repository}:{_pattern(evaluator, 'tag', release.tag, facts)}"
    fingerprint = (
        _pattern(evaluator, "cache-fingerprint", release.cache_fingerprint, facts)
        if release.cache_fingerprint
        else ""
    )
    document = statement(
        evaluator.output_name, output, facts, reference, dirty, fingerprint=fingerprint
    )
    labels = labels_of(document)
    base = evaluator.input(config.base.name)[0] if config.base is not None else None
    beneath = [
        tree.input(f"below-{index}")
        for index, tree in enumerate(t for n, t in trees.items() if _is_root(evaluator, n))
    ]
    parts = {
        part: tree
        for name, whole in trees.items()
        for part, tree in _parts(evaluator, name, whole).items()
    }
    layers = {
        name: _layer(evaluator, name, tree, base, [e for e in beneath if e.drv not in own])
        for name, tree in parts.items()
        for own in [{tree.drv, trees[name.partition(".")[0]].drv}]
    }
    stated = _statement(evaluator, document, trees, layers, base)
    layered = {**parts, STATEMENT_COMPONENT: stated}
    layers[STATEMENT_COMPONENT] = _layer(evaluator, STATEMENT_COMPONENT, stated, base, beneath)
    env: dict[str, str] = {}
    for name in trees:
        image = evaluator.components[name].image
        env.update(image.env if image else {})
    env.update(config.env)
    env.update(_caches(evaluator, config.caches, fingerprint))
    inputs: list[Input] = []
    for index, (name, tree) in enumerate(layered.items()):
        inputs += [layers[name].input(f"layer-{index}"), tree.input(f"tree-{index}")]
        inputs.append(Input(f"placed-{index}", layers[name].drv, "tree"))
    inputs += [t.input(f"whole-{i}") for i, t in enumerate(trees.values())]
    if base is not None:
        inputs.append(base.input("base-0"))
    tree_labels: dict[str, Value] = {
        f"{release.label_prefix}.{name}.tree": f"whole-{index}" for index, name in enumerate(trees)
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
    stated_drvs = {name: tree.drv for name, tree in trees.items()}
    return ImagePlan(Located(image_drv), reference, labels, tuple(layered), stated_drvs)


def component_layer(evaluator: OutputView, name: str) -> Located:
    """The layer that one component makes in its output's image, the very one of `plan_image`.

    Raises E-COMPONENT for a component that puts nothing into images, or several layers.
    """
    component = evaluator.components[name]
    tree = evaluator.layer(name)
    if tree is None or component.image is None or component.image.split:
        raise ReprobuildError(
            "E-COMPONENT", f"component {name} makes no single layer", component=name
        )
    config = evaluator.output.image
    base = None
    if config is not None and config.base is not None:
        base = evaluator.input(config.base.name)[0]
    roots = [evaluator.layer(n) for n in evaluator.output.components if _is_root(evaluator, n)]
    beneath = [
        whole.input(f"below-{index}")
        for index, whole in enumerate(root for root in roots if root is not None)
        if whole.drv != tree.drv
    ]
    return _layer(evaluator, name, tree, base, beneath)


def _statement(
    evaluator: OutputView,
    document: dict[str, Value],
    trees: Mapping[str, Located],
    layers: Mapping[str, Located],
    base: Located | None,
) -> Located:
    """What lies inside the image: it reads every layer, and what the layers' files come from."""
    inputs = [tree.input(f"tree-{name}") for name, tree in trees.items()]
    for name, layer in layers.items():
        inputs += [layer.input(f"layer-{name}"), Input(f"placed-{name}", layer.drv, "tree")]
    stated: dict[str, Value] = {}
    for name, tree in trees.items():
        rows: list[Value] = []
        for index, origin in enumerate(origins(evaluator.graph, tree)):
            rows.append(origin.document())
            if origin.located is not None:
                inputs.append(origin.located.input(f"origin-{name}-{index}"))
        stated[name] = rows
        source = evaluator.git_source(name)
        if source is not None:
            inputs.append(source.input(f"source-{name}"))
    if base is not None:
        inputs.append(base.input("base-0"))
    return Located(
        evaluator.graph.add(
            Derivation(
                name=f"{evaluator.output_name}.statement",
                builder="builtin:statement",
                inputs=tuple(inputs),
                params={
                    "document": document,
                    "origins": stated,
                    "program": evaluator.contract_program,
                    "verifier": evaluator.verify_program,
                },
            )
        )
    )


def _parts(evaluator: OutputView, name: str, whole: Located) -> dict[str, Located]:
    """The layers of a component: its splits, as `NAME.SPLIT`, then the rest."""
    image = evaluator.components[name].image
    assert image is not None
    out: dict[str, Located] = {}
    taken: list[str] = []
    for split, patterns in image.split.items():
        out[f"{name}.{split}"] = _part(evaluator, f"{name}.{split}", whole, patterns, taken)
        taken += patterns
    out[name] = _part(evaluator, name, whole, (), taken) if taken else whole
    return out


def _part(
    evaluator: OutputView,
    name: str,
    whole: Located,
    include: Sequence[str],
    exclude: Sequence[str],
) -> Located:
    place: Value = {
        "exclude": list(exclude),
        "from": "",
        "include": list(include),
        "input": "tree-0",
        "replace": False,
        "to": "",
    }
    return Located(
        evaluator.graph.add(
            Derivation(
                name=f"{evaluator.output_name}.{name}.part",
                builder="builtin:join",
                inputs=(whole.input("tree-0"),),
                params={"executables": [], "files": {}, "links": {}, "place": [place]},
            )
        )
    )


def _caches(evaluator: OutputView, caches: Mapping[str, str], fingerprint: str) -> dict[str, str]:
    """Variables that name cache directories: each holds the fingerprint, so that a cache never
    outlives the sources that filled it. Raises E-FLAKE."""
    where = f"outputs.{evaluator.output_name}"
    if caches and not fingerprint:
        raise ReprobuildError(
            "E-FLAKE",
            f"{where}.image.caches needs {where}.release.cache-fingerprint",
            key=f"{where}.release.cache-fingerprint",
        )
    for name, directory in caches.items():
        if "{fingerprint}" not in directory:
            raise ReprobuildError(
                "E-FLAKE",
                f"{where}.image.caches.{name} does not say where {{fingerprint}} goes",
                key=f"{where}.image.caches.{name}",
            )
    return {n: path.replace("{fingerprint}", fingerprint) for n, path in caches.items()}


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
    inputs += beneath
    owner = name.partition(".")[0]
    component = evaluator.components.get(owner)
    image = component.image if component is not None else None
    config = evaluator.output.image
    roots = [n for n in evaluator.output.components if n != owner and _is_root(evaluator, n)]
    params: dict[str, Value] = {
        # A directory that a root made special stays so when a layer puts something into it.
        "beneath_owners": {p: o for root in roots for p, o in _owners(evaluator, root).items()},
        "compression": config.compression if config is not None else "gzip",
        "level": config.level if config is not None else DEFAULT_LEVEL,
        # Not the release's date: a layer must not change because a release is of another day.
        "mtime": SOURCE_DATE_EPOCH,
        "name": name,
        "owners": _owners(evaluator, owner),
        "owners_elsewhere": bool(image and image.split),
        "prefix": "",
        "remove": list(image.remove if image and name == owner else ()),
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


def _pattern(evaluator: OutputView, key: str, text: str, facts: Sequence[ComponentFacts]) -> str:
    release = evaluator.output.release
    assert release is not None
    values = tag_values(release, facts)
    where = f"outputs.{evaluator.output_name}.release.{key}"
    try:
        return Pattern.parse(text).render(values)
    except (KeyError, ValueError) as error:
        raise ReprobuildError("E-FLAKE", f"{where}: {error}", key=where) from error
