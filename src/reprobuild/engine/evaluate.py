"""evaluate: flake, components and lock become a graph of derivations. Pure; builds nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.agreement import source_disagrees
from reprobuild.core.component import (
    Component,
    CudaModuleStep,
    JoinStep,
    KernelCheck,
    PythonWheelStep,
    RootfsStep,
    ScriptStep,
    Step,
    TemplateStep,
    UnpackStep,
    WheelInstallStep,
)
from reprobuild.core.derivation import Derivation, FixedOutput
from reprobuild.core.digest import Digest
from reprobuild.core.flake import FixtureInput, Flake, GitInput, Output, Source
from reprobuild.core.graph import Graph
from reprobuild.core.kinds.context import Located
from reprobuild.core.kinds.cuda_module import cuda_module
from reprobuild.core.kinds.imageroot import root_of
from reprobuild.core.kinds.labels import ComponentFacts, SourceFacts
from reprobuild.core.kinds.python_wheel import python_wheel
from reprobuild.core.kinds.script import script
from reprobuild.core.kinds.template import template
from reprobuild.core.kinds.trees import join, join_all, placements, rootfs, unpack, wheel_install
from reprobuild.core.lock import FilesPin, Lock, PinnedOutput, PinnedSource
from reprobuild.core.origins import fetches, integrated_source, spec_digest
from reprobuild.core.reference import Ref
from reprobuild.engine.imageplan import ImagePlan, component_layer, plan_image
from reprobuild.engine.listing import Lister, Listing, listed
from reprobuild.engine.openness import not_as_published, open_error
from reprobuild.engine.sourcefacts import integrated_facts, plain_facts
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class Checked:
    """A kernel check, and the trees that its module and `uses` stand for."""

    check: KernelCheck
    module: Located
    uses: Mapping[str, Located]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One output as derivations.

    `components` are the results by name, in the output's order; `image` the OCI layout's
    derivation with its reference and labels, where the output is an image; `dirty` names the
    overridden inputs that it really depends on.
    """

    output: str
    graph: Graph
    components: Mapping[str, Located]
    image: ImagePlan | None
    dirty: tuple[str, ...] = ()
    step: Callable[[str, str], Located] | None = None
    """One step of a component, for installables that name one."""
    checks: Callable[[str], dict[str, Checked]] = field(default=lambda component: {})
    """The kernel checks of a component, by name."""

    def target(self, component: str | None) -> Located:
        """What an installable means: the component's result, or the whole output's image."""
        if component is not None:
            return self.components[component]
        if self.image is not None:
            return self.image.located
        raise KeyError(self.output)


@dataclass(slots=True)
class Evaluator:
    """Evaluates one output of a project.

    `overrides` gives store trees for inputs that a user tries from a local directory.
    `contract_program` and `verify_program` are the texts of the programs that print an image's
    runtime contract and check its files.
    """

    flake: Flake
    components: Mapping[str, Component]
    lock: Lock | None
    output_name: str
    overrides: Mapping[str, Digest] = field(default_factory=dict)
    contract_program: str = ""
    verify_program: str = ""
    graph: Graph = field(default_factory=Graph)
    lister: Lister | None = None
    """Lists files of trees that are at hand; the lock's lists count where there is none."""
    _results: dict[tuple[str, str], Located] = field(default_factory=dict)
    _inputs: dict[str, tuple[Located, ...]] = field(default_factory=dict)
    _dirty: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    """The inputs whose pins the derivations made so far rest on; overridden ones are not."""

    def __post_init__(self) -> None:
        """Puts the files that this output names in place of its components' own, for its `arch`."""
        named = {name: self.components[file] for name, file in self.output.variants.items()}
        merged = {**self.components, **named}
        self.components = {n: c.for_arch(self.output.arch) for n, c in merged.items()}

    @property
    def output(self) -> Output:
        """The output's declaration."""
        return self.flake.outputs[self.output_name]

    @property
    def pinned(self) -> PinnedOutput:
        """The output's pins, empty where the lock has none."""
        pins = self.lock.outputs if self.lock else {}
        return pins.get(self.output_name, PinnedOutput())

    def evaluate(self) -> Evaluation:
        """The whole output; raises E-LOCK-MISSING, E-LOCK-STALE, E-OUTPUT-OPEN."""
        for what in sorted(self.pinned.open):
            raise self._open(what)
        results = {name: self.component(name) for name in self.output.components}
        image = None
        if self.output.release is not None:
            image = plan_image(self, tuple(sorted(self._dirty)))
        dirty = tuple(sorted(self._dirty))
        return Evaluation(
            self.output_name, self.graph, results, image, dirty, self.step, self.checks
        )

    def evaluate_part(self, component: str) -> Evaluation:
        """One component of the output, which may be had though others are open."""
        results = {component: self.component(component)}
        dirty = tuple(sorted(self._dirty))
        return Evaluation(
            self.output_name, self.graph, results, None, dirty, self.step, self.checks
        )

    def image_layer(self, component: str) -> Located:
        """The layer that a component makes in this output's image."""
        return component_layer(self, component)

    def _open(self, what: str) -> ReprobuildError:
        source = self.output.sources.get(what)
        declared = self.flake.inputs.get(source.input if source else what)
        said = f"{what}: {self.pinned.open[what]}"
        return open_error(self.output_name, what, said, declared)

    # -- components and steps ----------------------------------------------------------------

    def component(self, name: str) -> Located:
        """A component's result."""
        return _Context(self, name, "").resolve(self.components[name].result)

    def step(self, component: str, name: str) -> Located:
        """One step of a component."""
        key = (component, name)
        if key not in self._results:
            spec = self.components[component].steps[name]
            self._results[key] = _expand(spec, _Context(self, component, name))
        return self._results[key]

    def checks(self, component: str) -> dict[str, Checked]:
        """The kernel checks that a component states."""
        context = _Context(self, component, "")
        return {
            name: Checked(
                check,
                context.resolve(check.module),
                {use: context.resolve(ref) for use, ref in check.uses.items()},
            )
            for name, check in self.components[component].checks.items()
        }

    def layer(self, component: str) -> Located | None:
        """The tree that a component puts into images, rooted at `/`; None when it puts none."""
        image = self.components[component].image
        if image is None:
            return None
        key = (component, "@layer")
        if key not in self._results:
            context = _Context(self, component, "layer-tree")
            self._results[key] = join_all(
                context.name,
                placements(image.place, context),
                context,
                links=image.links,
                files=image.files,
            )
        return self._results[key]

    # -- inputs and sources ------------------------------------------------------------------

    def input(self, name: str) -> tuple[Located, ...]:
        """What an input fetches: one file after another, or one tree."""
        if name in self.overrides:
            self._dirty.add(name)
            return (self._overridden(name),)
        self.used.add(name)
        if name not in self._inputs:
            declared = self.flake.inputs[name]
            pin = self.lock.inputs.get(name) if self.lock else None
            if pin is None:
                raise self._unpinned(name)
            if pin.spec != spec_digest(declared).hex or pin.kind != declared.kind:
                if self.lock is not None and name in self.lock.open:
                    raise self._unpinned(name)
                raise ReprobuildError(
                    "E-LOCK-STALE",
                    f"input {name} was declared differently when it was pinned",
                    input=name,
                )
            filenames = [f.filename for f in pin.files] if isinstance(pin, FilesPin) else [""]
            self._inputs[name] = tuple(
                Located(self.graph.add(derivation), filename=filename)
                for derivation, filename in zip(
                    fetches(name, declared, pin), filenames, strict=True
                )
            )
        return self._inputs[name]

    def _unpinned(self, name: str) -> ReprobuildError:
        why = self.lock.open.get(name) if self.lock else None
        if why is None:
            return ReprobuildError("E-LOCK-MISSING", f"input {name} is not pinned", input=name)
        return open_error(self.output_name, name, f"input {name}: {why}", self.flake.inputs[name])

    def _overridden(self, name: str) -> Located:
        fixed = FixedOutput("tree", tree=self.overrides[name])
        origin = {"kind": "override", "input": name}
        return Located(
            self.graph.add(Derivation(f"inputs.{name}", "fetch", fixed=fixed, origin=origin))
        )

    def source(self, component: str) -> Located:
        """A component's source: integrated as the output says, else its input as it is."""
        wanted = self.output.sources.get(component)
        if wanted is not None and wanted.input not in self.overrides:
            pin = self._pinned_source(component, wanted)
            declared = self.flake.inputs[wanted.input]
            self.used.add(wanted.input)
            return Located(self.graph.add(integrated_source(component, declared, wanted, pin)))
        name = wanted.input if wanted is not None else self.components[component].input
        if name is None:
            raise ReprobuildError(
                "E-COMPONENT",
                f"component {component} has no source in output {self.output_name}",
                component=component,
                hint=f"say `input` in derivations/{component}.toml, or add "
                f"[outputs.{self.output_name}.sources.{component}] to the flake",
            )
        return self.input(name)[0]

    def git_source(self, component: str) -> Located | None:
        """A component's source where it is a git tree (integrated or as it is), else None."""
        wanted = self.output.sources.get(component)
        name = wanted.input if wanted is not None else self.components[component].input
        if name is None:
            return None
        located = self.source(component) if wanted is not None else self.input(name)[0]
        fixed = self.graph.nodes[located.drv].fixed
        return located if fixed is not None and fixed.kind == "git-tree" else None

    def _pinned_source(self, component: str, wanted: Source) -> PinnedSource:
        pin = self.pinned.sources.get(component)
        where = f"outputs.{self.output_name}.sources.{component}"
        current = pin is not None and pin.spec == spec_digest(wanted).hex
        if not current and component in self.pinned.open:
            raise self._open(component)
        if pin is None:
            raise ReprobuildError("E-LOCK-MISSING", f"{where} is not pinned", key=where)
        if not current:
            raise ReprobuildError("E-LOCK-STALE", f"{where} changed after it was pinned", key=where)
        declared = self.flake.inputs[wanted.input]
        assert isinstance(declared, (GitInput, FixtureInput))
        said = source_disagrees(declared, wanted, pin)
        if said:
            raise ReprobuildError("E-LOCK-STALE", f"{where}: {said}", key=where)
        for what, stated, got in (
            ("tree", wanted.tree, pin.tree),
            ("patch", wanted.patch_sha256, pin.patch_sha256),
        ):
            if stated is not None and stated != got:
                raise not_as_published(where, what, stated, got)
        return pin

    # -- facts -------------------------------------------------------------------------------

    def facts(self, component: str) -> ComponentFacts:
        """What labels and statement say of a component."""
        spec = self.components[component]
        archs: list[str] = []
        for step in spec.steps.values():
            if isinstance(step, CudaModuleStep):
                archs += [arch for arch in step.arch if arch not in archs]
        image = spec.image
        return ComponentFacts(
            name=component,
            version=self.version(component),
            drv=self.component(component).drv,
            source=self._source_facts(component),
            paths=[place.to for place in image.place] if image else [],
            cuda=image.cuda if image else (),
            archs=sorted(archs),
            python=image.python if image else (),
            licence=spec.licence,
            modified=image.modified if image else {},
        )

    def _source_facts(self, component: str) -> SourceFacts | None:
        wanted = self.output.sources.get(component)
        if wanted is None:
            return plain_facts(self.flake, self.lock, self.components[component].input)
        pin = self.pinned.sources.get(component)
        return integrated_facts(self.flake, wanted, pin) if pin is not None else None

    def version(self, component: str) -> str:
        """The stated version, else that of the component's only package."""
        spec = self.components[component]
        if spec.version is not None:
            return spec.version
        pin = self.lock.inputs.get(spec.input or "") if self.lock else None
        if isinstance(pin, FilesPin) and len(pin.files) == 1:
            return pin.files[0].version
        return ""


@dataclass(frozen=True, slots=True)
class _Context:
    """A step's view of the project (core.kinds.context.StepContext)."""

    evaluator: Evaluator
    component: str
    step: str

    @property
    def name(self) -> str:
        return f"{self.component}.{self.step}" if self.step else self.component

    @property
    def version(self) -> str:
        return self.evaluator.version(self.component)

    def resolve(self, ref: Ref) -> Located:
        found = self.resolve_all(ref)
        if len(found) != 1:
            raise ReprobuildError(
                "E-COMPONENT",
                f"{self.name}: {ref} names {len(found)} files where one tree is wanted",
                component=self.component,
                hint="unpack them in a step of their own and refer to that",
            )
        return found[0]

    def resolve_all(self, ref: Ref) -> tuple[Located, ...]:
        evaluator = self.evaluator
        if ref.scope == "inputs":
            found = evaluator.input(ref.name)
        elif ref.scope == "source":
            found = (evaluator.source(self.component),)
        elif ref.scope == "steps":
            found = (evaluator.step(self.component, ref.name),)
        elif ref.scope == "toolchains":
            toolchain = evaluator.flake.toolchains[ref.name]
            part = toolchain.root if ref.step == "root" else toolchain.cuda
            assert part is not None
            found = self.resolve_all(part)
        elif ref.step:
            found = (evaluator.step(ref.name, ref.step),)
        else:
            found = (evaluator.component(ref.name),)
        return tuple(located / ref.path if ref.path else located for located in found)

    def matching(self, tree: Ref, pattern: str, exclude: Sequence[str]) -> tuple[str, ...]:
        evaluator = self.evaluator
        known = evaluator.pinned.units
        asked = Listing(self.component, self.step, self.resolve(tree), pattern, tuple(exclude))
        return listed(asked, known, evaluator.lister, evaluator.output_name)

    def _toolchain(self, name: str | None) -> str:
        chosen = name or self.evaluator.output.toolchain
        if chosen is None and len(self.evaluator.flake.toolchains) == 1:
            chosen = next(iter(self.evaluator.flake.toolchains))
        if chosen is None:
            raise ReprobuildError(
                "E-COMPONENT",
                f"{self.name} does not say which toolchain it is built with",
                component=self.component,
                hint="set `toolchain` in the step or in the output",
            )
        return chosen

    def toolchain_root(self, toolchain: str | None, root: Ref | None) -> Located:
        wanted = root or self.evaluator.flake.toolchains[self._toolchain(toolchain)].root
        return root_of(str(wanted), self.resolve(wanted), self.evaluator.graph)

    def toolchain_cuda(self, toolchain: str | None) -> Located:
        name = self._toolchain(toolchain)
        cuda = self.evaluator.flake.toolchains[name].cuda
        if cuda is None:
            raise ReprobuildError(
                "E-COMPONENT",
                f"{self.name} compiles CUDA, but toolchain {name} has no `cuda`",
                component=self.component,
                hint=f"set toolchains.{name}.cuda in the flake",
            )
        return self.resolve(cuda)

    def add(self, derivation: Derivation) -> Located:
        return Located(self.evaluator.graph.add(derivation), derivation.outputs[0])


def _expand(spec: Step, context: _Context) -> Located:
    for model, function in _KINDS:
        if isinstance(spec, model):
            return function(spec, context)
    raise AssertionError(f"no kind for {spec!r}")


_KINDS: tuple[tuple[type, Callable[..., Located]], ...] = (
    (UnpackStep, unpack),
    (RootfsStep, rootfs),
    (JoinStep, join),
    (ScriptStep, script),
    (PythonWheelStep, python_wheel),
    (WheelInstallStep, wheel_install),
    (CudaModuleStep, cuda_module),
    (TemplateStep, template),
)
