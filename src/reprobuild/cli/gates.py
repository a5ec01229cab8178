"""The kinds of gates that this tool runs itself, over an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reprobuild.core.wording import plural
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reprobuild.app import App
    from reprobuild.core.digest import Digest
    from reprobuild.core.gates import Gate
    from reprobuild.core.graph import Graph
    from reprobuild.engine.documents import ReleaseDocuments
    from reprobuild.engine.evaluate import Checked, Evaluation
    from reprobuild.engine.kernelcheck import Place
    from reprobuild.engine.qualify import NotRun, Runner, Shown, Subject

_OPEN = ("E-OUTPUT-OPEN", "E-LOCK-MISSING", "E-LOCK-STALE")
_AWAY = ("E-GIT-FETCH", "E-OFFLINE", "E-REF-MISSING", "E-FETCH", "E-GIT-MISSING-OBJECT")
CONTRACT = ("/usr/bin/python3", "/usr/share/reprobuild/contract.py")


class Gates:
    """Runners for one output; what cannot be evaluated or was not realized is said, not run."""

    def __init__(self, app: App, made: ReleaseDocuments) -> None:
        self._app, self._made = app, made
        self._graph: Graph | None = None
        self._evaluation: Evaluation | None = None
        self._why = ""
        try:
            from reprobuild.cli.evaluation import evaluate

            self._graph, (target,) = evaluate(app, (made.output,))
            self._evaluation = target.evaluation
        except ReprobuildError as error:
            if error.code not in _OPEN:
                raise
            self._why = error.message

    def by_kind(self) -> Mapping[str, Runner]:
        """A runner for each kind."""
        return {
            "runtime-contract": self.runtime_contract,
            "release-composition": self.release_composition,
            "kernel-coverage": self.kernel_coverage,
            "reproducibility": self.reproducibility,
            "kernel-check": self.kernel_check,
        }

    @property
    def subject(self) -> Subject:
        """The image of the output: by config digest where it is made, by drv where it can be."""
        from reprobuild.engine.qualify import Subject

        drv = image = ""
        if self._evaluation is not None and self._evaluation.image is not None:
            drv = str(self._evaluation.image.located.drv)
            tree = self._image()
            image = str(self._app.image_facts(tree).config_digest) if tree is not None else ""
        published = self._made.facts.declared.published
        if not drv and published is not None and published.image_id:
            # An open output has no drv; what evidence can be of is what was published.
            image = f"sha256:{published.image_id}"
        return Subject(self._made.output, self._made.facts.reference, image, drv)

    def _image(self) -> Digest | None:
        if self._evaluation is None or self._evaluation.image is None:
            return None
        located = self._evaluation.image.located
        return self._tree(located)

    def _tree(self, located: Any) -> Digest | None:
        record = self._app.store.realized(located.drv)
        tree: Digest | None = record.outputs.get(located.output) if record else None
        return tree if tree is not None and self._app.store.contains(tree) else None

    def _not_made(self) -> NotRun:
        from reprobuild.engine.qualify import NotRun

        return NotRun(
            self._why or f"the image is not made here; run `reprobuild realize {self._made.output}`"
        )

    def runtime_contract(self, gate: Gate) -> Shown | NotRun:
        """The image's own contract program, inside the image, in Docker."""
        from reprobuild.engine.qualify import NotRun, Shown

        tree = self._image()
        if tree is None:
            return self._not_made()
        layout = self._app.store.materialise(tree)
        try:
            status, said = self._app.qualification.run_image(
                layout, self._made.facts.reference, CONTRACT
            )
        except ReprobuildError as error:
            if error.code != "E-DOCKER-UNAVAILABLE":
                raise
            return NotRun(error.message)
        last = said.strip().splitlines()[-1][:300] if said.strip() else "no output"
        if status != 0:
            return Shown(False, f"the contract inside the image does not hold: {last}")
        runtime = ", ".join(f"{k} {v}" for k, v in self._made.facts.release.runtime.items())
        return Shown(True, f"every file, package and kernel library is as stated ({runtime})")

    def release_composition(self, gate: Gate) -> Shown | NotRun:
        """Trees and patches from the repositories, documents, rules, and Compose files."""
        from reprobuild.cli.releasing import integrated
        from reprobuild.engine.qualify import NotRun, Shown
        from reprobuild.engine.releasecheck import check_release

        made = self._made
        trees, unseen = integrated(self._app, made.output)
        checked = check_release(made, self._app.store, trees, unseen)
        if checked.problems:
            return Shown(False, checked.problems[0])
        found = made.verify(self._app.sources.pinner())
        complaint = found.complaint()
        if complaint is not None and complaint.code == "E-TREE-MISMATCH":
            return Shown(False, complaint.message)
        if complaint is not None:
            return NotRun(f"the sources cannot be composed here: {complaint.message}")
        said = self._compose()
        if said is not None:
            return said
        files = len(made.served)
        composed = f"; {files} Compose files" if files else ""
        return Shown(True, f"trees and patches of {', '.join(found.state)}{composed} are as stated")

    def _compose(self) -> Shown | NotRun | None:
        from reprobuild.engine.qualify import NotRun, Shown

        for name in self._made.served:
            ok, said = self._app.qualification.compose_takes(self._made.compose(name))
            if ok is None:
                return NotRun(said)
            if not ok:
                return Shown(False, f"Compose refuses profile {name}: {said[:200]}")
        return None

    def kernel_coverage(self, gate: Gate) -> Shown | NotRun:
        """Every kernel of every built module has machine code for its architectures, no PTX."""
        from reprobuild.core.component import CudaModuleStep
        from reprobuild.core.cubin.coverage import uncovered
        from reprobuild.engine.qualify import NotRun, Shown

        if self._evaluation is None:
            return self._not_made()
        modules = kernels = 0
        project, output = self._app.project, self._made.facts.declared
        for component, located in self._evaluation.components.items():
            described = project.components[output.described_by(component)]
            steps = described.for_arch(output.arch).steps.values()
            cuda = [step for step in steps if isinstance(step, CudaModuleStep)]
            if not cuda:
                continue
            tree = self._tree(located)
            if tree is None:
                return NotRun(f"{component} is not made here")
            archs = sorted({arch for step in cuda for arch in (step.require or step.arch)})
            forbid = not any(step.ptx for step in cuda)
            table = self._app.kernels.table(tree)
            readable = self._app.kernels.demangle(k.name for m in table.values() for k in m.kernels)
            for path, module in table.items():
                lacking = uncovered(module, archs, readable, forbid_ptx=forbid)
                if lacking:
                    return Shown(False, f"{component}/{path}: {lacking[0]}")
                modules += 1
                kernels += len(module.kernels)
        if not modules:
            return Shown(False, "there is no kernel in it at all")
        return Shown(
            True,
            f"{plural(kernels, 'kernel')} in {plural(modules, 'module')}: machine code, no PTX",
        )

    def kernel_check(self, gate: Gate) -> Shown | NotRun:
        """Kernels run on a GPU of this machine, against their references."""
        from reprobuild.cli.evaluation import evaluate
        from reprobuild.engine.kernelcheck import run_checks

        app, output = self._app, gate.of or self._made.output
        try:
            _, (target,) = evaluate(app, (output,))
        except ReprobuildError as error:
            if error.code not in _OPEN:
                raise
            return self._not_made()
        places: dict[str, Place | None] = {}
        for component in target.evaluation.components:
            for name, checked in target.evaluation.checks(component).items():
                places[f"{output}.{component}.{name}"] = self._place(checked)
        return run_checks(places, output, app.flake_dir, app.qualification.bench)

    def _place(self, checked: Checked) -> Place | None:
        """Where a check's trees lie on disk; None where one of them is not made here."""
        from reprobuild.engine.kernelcheck import Place

        paths = {}
        for name, located in {"": checked.module, **checked.uses}.items():
            tree = self._tree(located)
            if tree is None:
                return None
            paths[name] = self._app.store.materialise(tree) / located.path
        tree = self._tree(checked.module)
        assert tree is not None
        return Place(checked.check, str(tree), paths.pop(""), paths)

    def reproducibility(self, gate: Gate) -> Shown | NotRun:
        """Every component and the image, built a second time."""
        from reprobuild.cli.options import machine_memory
        from reprobuild.engine.qualify import Shown
        from reprobuild.engine.realize import Wishes
        from reprobuild.engine.scheduler import Limits

        if self._evaluation is None or self._graph is None or self._image() is None:
            return self._not_made()
        assert self._evaluation.image is not None
        drvs = [place.drv for place in self._evaluation.components.values()]
        drvs.append(self._evaluation.image.located.drv)
        isolation = self._made.facts.release.isolation
        limits = Limits(jobs=1, cores=2, memory=int(machine_memory() * 0.5))
        wishes = Wishes(isolation=isolation, limits=limits, check=frozenset(drvs))
        try:
            done = self._app.building.realizer(isolation).realize(self._graph, drvs, wishes)
        except ReprobuildError as error:
            if error.code != "E-NOT-REPRODUCIBLE":
                raise
            return Shown(False, error.message)
        return Shown(True, f"{done.checked} derivations built a second time, all equal")
