"""A side of a comparison out of an evaluated output, with what the store knows of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reprobuild.core.derivation import Derivation, Isolation
from reprobuild.core.diff.read import environment, serving
from reprobuild.core.diff.side import (
    ComponentSide,
    Head,
    ImageSide,
    InputSide,
    LayerSide,
    Package,
    Side,
)
from reprobuild.core.digest import Digest
from reprobuild.core.flake import Flake
from reprobuild.core.graph import Graph
from reprobuild.core.image import ImageFacts
from reprobuild.core.integration.model import IntegrationSpec
from reprobuild.core.kinds.context import Located
from reprobuild.core.lock import FilesPin, GitPin, Lock, OciPin, PathPin, Pin
from reprobuild.core.reference import Ref
from reprobuild.core.tree import Directory, File
from reprobuild.engine.diff_loaded import Loaded
from reprobuild.engine.diff_stores import Store
from reprobuild.engine.evaluate import Evaluation, Evaluator

ReadImage = Callable[[Digest], "tuple[ImageFacts, Mapping[str, Any]]"]
"""An image layout tree's facts, and the `config` object of its config."""


@dataclass(slots=True)
class SideReader:
    """Makes sides of one project's outputs. `read_image` is told layout trees of `store`."""

    flake: Flake
    evaluator: Evaluator
    lock: Lock | None
    store: Store | None
    read_image: ReadImage

    def load(self, name: str, kind: str, component: str | None) -> Loaded:
        """The evaluated output, or one component of it, as a side; raises what evaluating does."""
        evaluator = self.evaluator
        evaluation = evaluator.evaluate()
        loaded = Loaded(Side(name, kind), evaluation.graph, self.store)
        names = [component] if component else list(evaluation.components)
        places = {n: self._place(evaluation, n) for n in names}
        components = {n: self._component(loaded, n, place) for n, place in places.items()}
        roots = {n: place.drv.hex for n, place in places.items()}
        image = None
        if component is None and evaluation.image is not None:
            roots["image"] = evaluation.image.located.drv.hex
            image = self._image(loaded, evaluation)
        used = {i for c in components.values() for i in c.inputs}
        if image is not None:
            closure = evaluation.graph.closure([Digest(roots["image"])])
            used |= _input_names(evaluation.graph.nodes[d] for d in closure)
        loaded.side = replace(
            loaded.side,
            release=self._release(evaluation) if component is None else {},
            components=components,
            inputs=self._inputs(used, evaluation.graph),
            image=image,
            roots=roots,
            output_name=evaluation.output,
            isolation=self._isolation(loaded, roots.values()),
        )
        return loaded

    def _place(self, evaluation: Evaluation, name: str) -> Located:
        layer = self.evaluator.layer(name) if evaluation.image is not None else None
        return layer if layer is not None else evaluation.components[name]

    def _release(self, evaluation: Evaluation) -> dict[str, str]:
        release = self.evaluator.output.release
        if release is None:
            return {}
        facts = {
            "codename": release.codename,
            "date": release.date.isoformat(),
            "isolation": release.isolation.value,
            "model_revision": release.model_revision or "",
            "output": evaluation.output,
            "reference": evaluation.image.reference if evaluation.image else "",
            "revision": release.revision,
            "title": release.title or "",
        }
        facts |= {f"runtime.{k}": v for k, v in release.runtime.items()}
        labels = evaluation.image.labels if evaluation.image else {}
        facts["cache_fingerprint"] = labels.get(f"{release.label_prefix}.cache.fingerprint", "")
        return {k: v for k, v in facts.items() if v}

    def _component(self, loaded: Loaded, name: str, place: Located) -> ComponentSide:
        facts = self.evaluator.facts(name)
        graph = self.evaluator.graph
        nodes = [graph.nodes[d] for d in graph.closure([place.drv])]
        source = facts.source
        origin, content = self._origin(name, nodes)
        spec = None
        if origin.get("base"):
            spec = IntegrationSpec.parse(origin)
        return ComponentSide(
            name=name,
            version=facts.version,
            repository=source.repository if source else "",
            ref=source.ref if source else "",
            base=source.base if source else "",
            strategy=source.strategy if source else "",
            heads=tuple(Head(*row) for row in source.heads) if source else (),
            tree=source.tree if source else "",
            patch_sha256=source.patch_sha256 if source else "",
            patch_digest=source.patch_digest if source else "",
            drv=place.drv.hex,
            output=self._tree(loaded, place),
            archs=tuple(facts.archs),
            inputs=tuple(sorted(_input_names(nodes))),
            spec=spec,
            origin=origin,
            content=content,
        )

    def _origin(self, name: str, nodes: Iterable[Derivation]) -> tuple[Mapping[str, Any], str]:
        """How a component's own source is come by, and the store tree it is, if it is one."""
        wanted = self.evaluator.components[name].input
        for node in nodes:
            if node.fixed is None or node.name not in (f"sources.{name}", f"inputs.{wanted}"):
                continue
            if node.fixed.kind == "tree" and node.fixed.tree is not None:
                return {}, node.fixed.tree.hex
            if node.fixed.kind == "git-tree":
                return node.origin, ""
        return {}, ""

    def _tree(self, loaded: Loaded, place: Located) -> str:
        tree = loaded.output(place.drv.hex, place.output)
        if not tree or not place.path or self.store is None:
            return tree
        here = Digest(tree)
        for part in place.path.split("/"):
            entry = self.store.tree(here).get(part.encode())
            if not isinstance(entry, Directory):
                return ""
            here = entry.digest
        return here.hex

    # -- the image ---------------------------------------------------------------------------

    def _image(self, loaded: Loaded, evaluation: Evaluation) -> ImageSide:
        plan = evaluation.image
        assert plan is not None
        node = evaluation.graph.nodes[plan.located.drv]
        config = node.params["config"] if isinstance(node.params, Mapping) else {}
        assert isinstance(config, Mapping)
        planned = ImageSide(
            reference=plan.reference,
            layers=self._layers(loaded, node),
            labels=dict(plan.labels),
            env=dict(config.get("env") or {}),  # type: ignore[arg-type]
            serving={
                k: config[k] for k in ("entrypoint", "cmd", "workdir", "user") if config.get(k)
            },
        )
        tree = loaded.output(plan.located.drv.hex)
        if not tree or self.store is None or not self.store.contains(Digest(tree)):
            return planned
        facts, run = self.read_image(Digest(tree))
        sizes = {layer.diff_id: layer.uncompressed for layer in planned.layers or ()}
        return ImageSide(
            facts.reference,
            str(facts.config_digest),
            str(facts.manifest_digest),
            tuple(
                LayerSide(
                    layer.component, str(layer.diff_id), str(layer.digest), layer.size,
                    sizes.get(str(layer.diff_id)),
                )
                for layer in facts.layers
            ),
            dict(facts.labels),
            environment(run.get("Env")),
            serving(run),
        )  # fmt: skip

    def _layers(self, loaded: Loaded, image: Derivation) -> tuple[LayerSide, ...] | None:
        """What the layers' own records say; None as soon as one is not on record, or a base
        image's layers come first."""
        found: list[LayerSide] = []
        names = image.params.get("components") if isinstance(image.params, Mapping) else ()
        inputs = {entry.name: entry.drv for entry in image.inputs}
        if "base-0" in inputs or not isinstance(names, (list, tuple)):
            return None
        for index, name in enumerate(names):
            described = self._layer(loaded.output(inputs[f"layer-{index}"].hex), str(name))
            if described is None:
                return None
            found.append(described)
        return tuple(found)

    def _layer(self, tree: str, component: str) -> LayerSide | None:
        if not tree or self.store is None or not self.store.contains(Digest(tree)):
            return None
        entry = self.store.tree(Digest(tree)).get(b"layer.json")
        if not isinstance(entry, File):
            return None
        with self.store.open_blob(entry.digest) as source:
            row = json.loads(source.read())
        return LayerSide(
            component, _sha(row["diff_id"]), _sha(row["digest"]), row["size"],
            row["uncompressed_size"],
        )  # fmt: skip

    # -- inputs ------------------------------------------------------------------------------

    def _inputs(self, used: Iterable[str], graph: Graph) -> dict[str, InputSide]:
        pins = self.lock.inputs if self.lock else {}
        tools = self._toolchain_inputs(graph)
        return {n: input_side(n, pins[n], n in tools) for n in sorted(used) if n in pins}

    def _toolchain_inputs(self, graph: Graph) -> set[str]:
        """Inputs that only a toolchain's trees are made of."""
        evaluator = self.evaluator
        tools: set[str] = set()
        for toolchain in self.flake.toolchains.values():
            for ref in (toolchain.root, toolchain.cuda):
                if ref is not None:
                    tools |= self._behind(ref, graph)
        components = set(evaluator.output.components)
        direct: set[str] = set()
        for node in graph.nodes.values():
            if node.name.partition(".")[0] in components:
                used = (e.drv for e in node.inputs if e.at not in _TOOLCHAIN_PLACES)
                direct |= _input_names(graph.nodes[drv] for drv in used)
        return tools - direct

    def _behind(self, ref: Ref, graph: Graph) -> set[str]:
        if ref.scope == "inputs":
            return {ref.name}
        if ref.scope != "components":
            return set()
        evaluator = self.evaluator
        place = evaluator.step(ref.name, ref.step) if ref.step else evaluator.component(ref.name)
        return _input_names(graph.nodes[d] for d in graph.closure([place.drv]))

    def _isolation(self, loaded: Loaded, roots: Iterable[str]) -> str:
        """The weakest grade on record below the roots."""
        order = list(Isolation)
        grades = []
        graph = loaded.graph
        assert graph is not None
        for digest in graph.closure([Digest(r) for r in roots]):
            if graph.nodes[digest].fixed is None:
                record = loaded.record(digest.hex)
                if record is not None:
                    grades.append(order.index(record.isolation))
        return order[max(grades)].value if grades else ""


_TOOLCHAIN_PLACES = ("/", "/cuda")
"""Where builds see the trees of a toolchain."""


def _sha(text: str) -> str:
    return text if text.startswith("sha256:") else f"sha256:{text}"


def _input_names(nodes: Iterable[Derivation]) -> set[str]:
    return {
        str(node.origin["input"])
        for node in nodes
        if node.fixed is not None and node.name.startswith("inputs.") and node.origin.get("input")
    }


def input_side(name: str, pin: Pin, toolchain: bool) -> InputSide:
    """From a lock's pin."""
    if isinstance(pin, FilesPin):
        packages = tuple(
            Package(file.name or file.filename, file.version or file.filename, file.sha256)
            for file in pin.files
        )
        return InputSide(name, pin.kind, packages=packages, toolchain=toolchain)
    if isinstance(pin, GitPin):
        return InputSide(name, pin.kind, digest=pin.tree, rev=pin.rev, toolchain=toolchain)
    assert isinstance(pin, (PathPin, OciPin))
    digest = pin.tree if isinstance(pin, PathPin) else pin.digest
    return InputSide(name, pin.kind, digest=str(digest), toolchain=toolchain)
