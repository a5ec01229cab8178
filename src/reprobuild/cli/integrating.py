"""What `integrate INSTALLABLE` does once it is known which sources are meant."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.graph import Graph
    from reprobuild.engine.integrate import StackMap
    from reprobuild.engine.stacks import DeclaredStack


@dataclass(frozen=True, slots=True)
class Question:
    """The sources that an installable stands for."""

    app: App
    installable: str
    subjects: tuple[DeclaredStack, ...]

    @classmethod
    def ask(cls, app: App, text: str) -> Question:
        """From `[DIR#]OUTPUT[.COMPONENT]`; raises E-USAGE, and as `declared_stack`."""
        from reprobuild.cli.options import in_flake
        from reprobuild.core.installable import parse_installable
        from reprobuild.engine.stacks import declared_stack

        app, (name,) = in_flake(app, (text,))
        flake, lock = app.project.flake, app.project.lock
        installable = parse_installable(name, flake)
        output = flake.outputs[installable.output]
        wanted = [installable.component] if installable.component else sorted(output.sources)
        missing = [c for c in wanted if c not in output.sources]
        if missing or not wanted:
            raise ReprobuildError(
                "E-USAGE",
                f"{installable} has no source with heads",
                hint="components with one: " + (", ".join(sorted(output.sources)) or "none"),
            )
        git, reviewed = app.sources.git_discovery(), app.resolutions.load()
        subjects = []
        for component in wanted:
            found = declared_stack(flake, lock, installable.output, component, git)
            subjects.append(replace(found, spec=replace(found.spec, resolutions=reviewed)))
        return cls(app, str(installable), tuple(subjects))

    def _single(self, what: str) -> DeclaredStack:
        if len(self.subjects) != 1:
            names = ", ".join(s.component for s in self.subjects)
            raise ReprobuildError(
                "E-USAGE", f"{what} takes one component; {self.installable} has {names}"
            )
        return self.subjects[0]

    def answer(self) -> int:
        """Integrates; a conflict is explained and ends with the status of E-CONFLICT."""
        from reprobuild.core.integration.render import explanation_text, integration_text
        from reprobuild.engine.integrate import attempt

        sources = self.app.sources.git_sources
        documents: dict[str, dict[str, Any]] = {}
        for subject in self.subjects:
            with sources.open(subject.origin, subject.spec) as repository:
                outcome = attempt(repository, subject.spec, sources.read)
            if outcome.integration is None:
                assert outcome.error is not None
                found = outcome.explanation
                outcome.error.hint = self._next(subject)
                if self.app.json:
                    document: dict[str, Any] = dict(outcome.error.as_document())
                    document["explanation"] = found.document() if found else None
                    click.echo(json.dumps(document, indent=2))
                    return outcome.error.exit_status
                titles = {head.number: head.title for head in subject.spec.heads}
                for line in explanation_text(found, titles) if found else ():
                    click.echo(line)
                raise outcome.error
            done = outcome.integration
            documents[subject.component] = {
                **done.document(),
                "matches": None if subject.tree is None else done.tree.hex == subject.tree,
                "pinned": subject.pinned,
                "exclusions": [
                    {
                        "number": e.number,
                        "head": e.head.hex,
                        "disposition": e.disposition,
                        "reason": e.reason,
                    }
                    for e in subject.spec.exclusions
                ],
            }
            if not self.app.json:
                click.echo(f"{subject.component}: base {subject.spec.base}")
                for line in integration_text(subject.spec, done):
                    click.echo(line)
                if not subject.pinned:
                    click.echo("not pinned yet: `reprobuild lock` writes this down")
        if self.app.json:
            whole = next(iter(documents.values())) if len(documents) == 1 else {}
            click.echo(json.dumps({**whole, "components": documents}, indent=2))
        wrong = [name for name, document in documents.items() if document["matches"] is False]
        if wrong and not self.app.json:
            raise ReprobuildError(
                "E-TREE-MISMATCH",
                "other trees are promised for " + ", ".join(wrong),
                components=wrong,
            )
        return 4 if wrong else 0

    def _next(self, subject: DeclaredStack) -> str:
        """What to do about a conflict that was just explained."""
        output = self.installable.removesuffix(f".{subject.component}")
        name = f"{output}.{subject.component}"
        return (
            "the clean stack is the base with the heads before that one; "
            f"`reprobuild integrate {name} --analyze` maps which heads collide; update, reorder or "
            f"drop one, or record a reviewed resolution: `reprobuild integrate {name} --resolve "
            "PATH=FILE --author NAME --reason TEXT`"
        )

    def analyze(self, svg: Path | None) -> int:
        """Maps one component's stack."""
        from reprobuild.engine.integrate import map_stack

        subject, sources = self._single("--analyze"), self.app.sources.git_sources
        found = map_stack(
            subject.origin,
            subject.spec,
            sources,
            sources.read,
            newer_base=self._newer_base(subject),
        )
        return print_map(self.app, found, subject.component, svg)

    def _newer_base(self, subject: DeclaredStack) -> Any:
        """Where the base is now, when that can be said without a network or with it."""
        ref = str(subject.origin.get("ref") or "")
        if subject.origin.get("kind") != "git" or not ref:
            return None
        from reprobuild.core.integration.request import full_ref

        try:
            refs = self.app.sources.git_sources.resolve(str(subject.origin["url"]), [full_ref(ref)])
        except ReprobuildError as error:
            click.echo(f"note: where the base is now is not known: {error.message}", err=True)
            return None
        return refs.get(full_ref(ref))

    def moved(self) -> int:
        """Says which heads are elsewhere now; ends with the status of E-HEAD-MOVED when one is."""
        from reprobuild.core.integration.moved import moved_error
        from reprobuild.engine.integrate import look_for_moved

        found: dict[str, list[Any]] = {}
        for subject in self.subjects:
            if subject.origin.get("kind") == "git":
                moved = look_for_moved(subject.origin, subject.spec, self.app.sources.git_sources)
                found[subject.component] = moved
        errors = [
            moved_error(m, f"reprobuild lock --update {component}.pulls.{m.number}")
            for component, moved in found.items()
            for m in moved
        ]
        if self.app.json:
            document: dict[str, Any] = dict(errors[0].as_document()) if errors else {}
            document["moved"] = {c: [m.document() for m in moved] for c, moved in found.items()}
            click.echo(json.dumps(document, indent=2))
            return errors[0].exit_status if errors else 0
        for error in errors:
            click.echo(error.message)
            for line in error.facts.get("range_diff") or []:  # type: ignore[union-attr]
                click.echo(f"    {line}")
            click.echo(f"  {error.hint}")
        if errors:
            raise errors[0]
        click.echo("every head is where it was pinned")
        return 0

    def record(self, answers: Sequence[str], author: str, reason: str) -> int:
        """Records reviewed resolutions of the conflict that stops the stack now."""
        from reprobuild.engine.resolutions import record

        subject = self._single("--resolve")
        written = record(
            subject.origin, subject.spec, self.app.sources.git_sources, self.app.resolutions,
            _answers(answers), author=author, reason=reason, read=self.app.sources.git_sources.read,
        )  # fmt: skip
        if self.app.json:
            click.echo(json.dumps({"recorded": written}, indent=2))
        else:
            for name in written:
                click.echo(f"recorded {name}")
        return 0

    def bisect(self, command: str, isolation: str) -> int:
        """Finds the first head with which the command fails."""
        from reprobuild.cli.evaluation import evaluate
        from reprobuild.cli.options import machine_memory
        from reprobuild.core.derivation import Isolation
        from reprobuild.core.digest import Digest
        from reprobuild.core.integration.strategies import integrate
        from reprobuild.engine.integrate import bisect
        from reprobuild.engine.probe import prefixes, probe, root_of
        from reprobuild.engine.realize import Wishes
        from reprobuild.engine.scheduler import Limits

        subject, sources = self._single("--bisect"), self.app.sources.git_sources
        with sources.open(subject.origin, subject.spec) as repository:
            done = integrate(repository, subject.spec, sources.read, digest_patch=False)
        graph, targets = evaluate(self.app, [self.installable])
        start = next(iter(targets[0].located.values())).drv
        grade = Isolation(isolation)
        cores = len(os.sched_getaffinity(0))
        limits = Limits(jobs=cores, cores=cores, memory=int(machine_memory() * 0.85))

        def realize(graph: Graph, target: Digest) -> object:
            return self.app.building.realizer(grade).realize(graph, [target], Wishes(grade, limits))

        assert done.base_tree is not None
        trial = probe(
            graph,
            root_of(graph, start),
            command,
            subject.origin,
            prefixes(subject.spec, done.tips, done.base_tree),
            realize,
        )
        with self.app.store.lease():
            found = bisect(subject.spec, done, trial)
        if self.app.json:
            click.echo(json.dumps(found.document(), indent=2))
        else:
            for heads, passed in found.runs:
                click.echo(f"with {heads} heads: {'passes' if passed else 'fails'}")
            click.echo(f"the first head with which it fails: PR #{found.number}")
            tail = found.failure.facts.get("tail")
            for line in tail if isinstance(tail, list) else ():
                click.echo(f"    {line}")
        return 0


def _answers(texts: Sequence[str]) -> dict[str, Path | None]:
    found: dict[str, Path | None] = {}
    for text in texts:
        path, equals, file = text.partition("=")
        if not equals or not path:
            raise ReprobuildError("E-USAGE", f"--resolve {text!r}: say PATH=FILE", got=text)
        found[path] = Path(file) if file else None
    return found


def print_map(app: App, found: StackMap, title: str, svg: Path | None) -> int:
    """Prints a stack's map, and draws it where that is wanted."""
    if svg is not None:
        from reprobuild.cli.files import write_errors
        from reprobuild.core.integration.drawing import algebra_svg

        with write_errors(svg):
            app.resolver.replace_file(svg, algebra_svg(found.algebra, title).encode())
    if app.json:
        click.echo(json.dumps(found.document(), indent=2))
        return 0
    from reprobuild.core.integration.render import algebra_text

    for line in algebra_text(found.algebra, list(found.absorbed)):
        click.echo(line)
    if found.newer_base is not None:
        click.echo(f"the base is at {found.newer_base} now, which")
        for absorbed in found.by_newer_base:
            if absorbed.state != "apart":
                where = f" (at {absorbed.at})" if absorbed.at else ""
                click.echo(f"  #{absorbed.number}: {absorbed.state.replace('_', ' ')}{where}")
    return 0
