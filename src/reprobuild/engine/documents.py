"""The documents of one output: what is known of it, put together for the pure writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.documents.contract import render_contract
from reprobuild.core.documents.facts import ReleaseFacts, SourceView, release_facts
from reprobuild.core.documents.prose import fact_values
from reprobuild.core.documents.runbook import Served, profile_values, render_runbook
from reprobuild.core.documents.state import SourceState, stated, unreached, verified
from reprobuild.core.evidence import Evidence
from reprobuild.core.flake import FixtureInput, GitInput, Source
from reprobuild.core.lock import PinnedSource
from reprobuild.core.profiles.compose import render_compose
from reprobuild.core.profiles.resolve import merged, profile_problems, resolve
from reprobuild.core.project import Project
from reprobuild.engine.pinning import Pinner
from reprobuild.errors import ReprobuildError

_AWAY = frozenset({"E-GIT-FETCH", "E-OFFLINE", "E-REF-MISSING", "E-GIT-MISSING-OBJECT"})
"""Why a repository cannot be looked into here, though it may be elsewhere."""


@dataclass(slots=True)
class Verified:
    """What looking into the repositories gave, and why into some there was no look."""

    state: dict[str, SourceState] = field(default_factory=dict)
    unreached: dict[str, ReprobuildError] = field(default_factory=dict)

    def complaint(self) -> ReprobuildError | None:
        """The error for what does not hold, else for what could not be looked into."""
        broken = [name for name, said in self.state.items() if said.from_pins.startswith("NO")]
        if broken:
            return ReprobuildError(
                "E-TREE-MISMATCH",
                f"the pins of {', '.join(broken)} give another tree than the contract states",
                components=broken,
            )
        for first in self.unreached.values():
            error = ReprobuildError(
                first.code,
                f"not looked into: {', '.join(self.unreached)}: {first.message}",
                hint=first.hint,
                components=list(self.unreached),
            )
            error.facts = {**first.facts, **error.facts}
            return error
        return None


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
                hint="profiles: " + (", ".join(self.served) or "none"),
            )
        return self.served[name]

    def verify(self, pinner: Pinner) -> Verified:
        """The state of each component, worked out anew from the repositories."""
        found = Verified()
        for view in self.facts.sources:
            try:
                found.state[view.component] = self._verify(pinner, view)
            except ReprobuildError as error:
                if error.code not in _AWAY:
                    raise
                found.state[view.component] = unreached(view)
                found.unreached[view.component] = error
        return found

    def _verify(self, pinner: Pinner, view: SourceView) -> SourceState:
        output = self.project.flake.outputs[self.output]
        wanted = output.sources[view.component]
        declared = self.project.flake.inputs[wanted.input]
        assert isinstance(declared, (GitInput, FixtureInput))
        free = wanted.model_copy(update={"tree": None, "patch_sha256": None})
        pins = self.project.lock.outputs.get(self.output) if self.project.lock else None
        known = pins.sources.get(view.component) if pins else None
        matches = _matches(pinner, declared, wanted, known, view.tree)
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


def _matches(
    pinner: Pinner,
    declared: GitInput | FixtureInput,
    wanted: Source,
    known: PinnedSource | None,
    tree: str,
) -> bool | None:
    """Whether the pins give the stated tree; None where no base is stated and none was found."""
    if known is not None or wanted.base_commit is not None or wanted.tree is None:
        free = wanted.model_copy(update={"tree": None, "patch_sha256": None})
        return pinner.source(declared, free, known).tree == tree
    try:
        pinner.source(declared, wanted.model_copy(update={"patch_sha256": None}), None)
    except ReprobuildError as error:
        if error.code not in ("E-TREE-MISMATCH", "E-CONFLICT"):
            raise
        return None
    return True
