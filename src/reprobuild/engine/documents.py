"""The documents of one output: what is known of it, put together for the pure writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.documents.contract import render_contract
from reprobuild.core.documents.facts import ReleaseFacts, SourceView, release_facts
from reprobuild.core.documents.prose import fact_values
from reprobuild.core.documents.runbook import Served, profile_values, render_runbook
from reprobuild.core.documents.state import SourceState, stated, verified
from reprobuild.core.evidence import Evidence
from reprobuild.core.flake import FixtureInput, GitInput
from reprobuild.core.profiles.compose import render_compose
from reprobuild.core.profiles.resolve import merged, profile_problems, resolve
from reprobuild.core.project import Project
from reprobuild.engine.pinning import Pinner
from reprobuild.errors import ReprobuildError


@dataclass(slots=True)
class ReleaseDocuments:
    """The use case; every method writes one document. `evidence` is by gate."""

    project: Project
    output: str
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    facts: ReleaseFacts = field(init=False)
    served: dict[str, Served] = field(init=False)
    values: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Raises E-NO-RELEASE for an output that is no image, E-FLAKE for a profile that is off."""
        project = self.project
        self.facts = release_facts(project.flake, project.components, project.lock, self.output)
        profiles = project.flake.outputs[self.output].profiles
        where = f"outputs.{self.output}.profiles"
        self.served = {}
        for name in profiles:
            profile = merged(profiles, name, where)
            problems = profile_problems(profile)
            if problems:
                raise ReprobuildError(
                    "E-FLAKE", f"{where}.{name}: {problems[0]}", key=f"{where}.{name}",
                    problems=problems if len(problems) > 1 else None,
                )  # fmt: skip
            self.served[name] = Served(profile, resolve(profile, {}, name))
        settings = {name: served.resolved.settings for name, served in self.served.items()}
        self.values = fact_values(self.facts, settings)

    def contract(self, state: Mapping[str, SourceState] | None = None) -> str:
        """The source merge contract; `state` is what `verify` found, else what is stated."""
        said = state or {view.component: stated(view) for view in self.facts.sources}
        return render_contract(self.facts, self.values, said)

    def runbook(self) -> str:
        """The runbook."""
        return render_runbook(self.facts, self.served, self.evidence, self.values)

    def compose(self, name: str) -> str:
        """A profile's Compose file; raises E-UNKNOWN-INSTALLABLE for a profile that is none."""
        served = self._profile(name)
        values = profile_values(self.values, served)
        return render_compose(self.facts, name, served.profile, values)

    def check_environment(self, name: str, environment: Mapping[str, str]) -> dict[str, object]:
        """What the profile comes to in an environment; raises E-PROFILE naming a broken rule."""
        resolved = resolve(self._profile(name).profile, environment, name)
        resolved.check(name)
        return {
            "clears": list(resolved.clears),
            "derived": resolved.derived,
            "offline": resolved.offline,
            "paths": list(resolved.paths),
            "settings": resolved.settings,
        }

    def _profile(self, name: str) -> Served:
        if name not in self.served:
            raise ReprobuildError(
                "E-UNKNOWN-INSTALLABLE",
                f"output {self.output} has no profile {name!r}",
                got=name,
                hint="there are " + (", ".join(self.served) or "none"),
            )
        return self.served[name]

    def verify(self, pinner: Pinner) -> dict[str, SourceState]:
        """The state of each component, worked out anew from the repositories.

        Raises what reaching them raises: E-GIT-FETCH, E-OFFLINE, E-REF-MISSING.
        """
        return {view.component: self._verify(pinner, view) for view in self.facts.sources}

    def _verify(self, pinner: Pinner, view: SourceView) -> SourceState:
        output = self.project.flake.outputs[self.output]
        wanted = output.sources[view.component]
        declared = self.project.flake.inputs[wanted.input]
        assert isinstance(declared, (GitInput, FixtureInput))
        free = wanted.model_copy(update={"tree": None, "patch_sha256": None})
        pins = self.project.lock.outputs.get(self.output) if self.project.lock else None
        known = pins.sources.get(view.component) if pins else None
        matches = pinner.source(declared, free, known).tree == view.tree
        branch = declared.model_copy(update={"ref": wanted.base or declared.ref})
        tip, tree = pinner.git.tip(branch, None)
        # The same heads on the branch as it is now: what still merges is what it lacks.
        heads = tuple(
            head.model_copy(update={"head": head.head or facts.head or None})
            for head, facts in zip(wanted.heads, view.heads, strict=True)
        )
        now = free.model_copy(
            update={"base_commit": tip.hex, "heads": heads, "composition_ref": None,
                    "composition_commit": None, "strategy": "merge"}
        )  # fmt: skip
        try:
            pin = pinner.source(branch, now, None)
        except ReprobuildError as error:
            if error.code != "E-CONFLICT":
                raise
            left = tuple(head.number for head in wanted.heads)
        else:
            left = tuple(
                head.number
                for head in pin.heads
                if head.disposition != "already_in_base" and not head.squashed_in_base
            )
        return verified(view, tip.hex, matches, left, tree.hex == view.tree)
