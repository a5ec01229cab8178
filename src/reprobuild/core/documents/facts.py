"""What is known of a release before anything is built, open or not: the facts of its documents.

Facts come from the lock where it has them, else from what the flake states. What neither says is
empty, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.component import Component
from reprobuild.core.digest import Digest
from reprobuild.core.flake import FixtureInput, Flake, GitInput, Output, Release, Source
from reprobuild.core.integration.address import repository_name
from reprobuild.core.kinds.labels import ComponentFacts, SourceFacts, tag_values
from reprobuild.core.lock import FilesPin, GitPin, Lock, PinnedSource
from reprobuild.core.pattern import Pattern
from reprobuild.errors import ReprobuildError

EMPTY_PATCH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of no bytes: every head is in the base already."""


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """A head as it is applied; `disposition` is empty until it was integrated here."""

    number: int
    head: str
    title: str
    summary: str = ""
    disposition: str = ""


@dataclass(frozen=True, slots=True)
class SourceView:
    """A component whose source is composed for this release."""

    component: str
    title: str
    repository: str
    branch: str
    base: str
    tree: str
    strategy: str
    heads: tuple[HeadFacts, ...]
    patch_sha256: str = ""
    version: str = ""
    note: str = ""
    merged: int = 0
    pinned: bool = False
    """Whether the lock has it: integrated here, and the tree came out."""
    resolutions: tuple[tuple[str, str, str], ...] = ()
    """(path, author, reason) of each recorded resolution that the integration took."""
    exclusions: tuple[tuple[int, str, str], ...] = ()
    """(number, disposition, reason) of each pull request that was looked at and left out."""

    @property
    def name(self) -> str:
        """The repository's short name, such as `b12x`: what `#246` belongs to."""
        return repository_name(self.repository) if self.repository else self.component

    @property
    def address(self) -> str:
        """`OWNER/NAME` on its forge."""
        return _short(self.repository)

    def linked(self, number: int, text: str) -> str:
        """A text that stands for a pull request, as a link where the repository is on a forge."""
        address = self.repository.removesuffix(".git")
        return f"[{text}]({address}/pull/{number})" if address.startswith("https://") else text

    @property
    def empty(self) -> bool:
        """Whether the integration patch is known to be empty."""
        return self.patch_sha256 == EMPTY_PATCH

    @property
    def landed(self) -> tuple[HeadFacts, ...]:
        """Heads that are known to be in the base already."""
        if self.empty:
            return self.heads
        return tuple(h for h in self.heads if h.disposition == "already_in_base")


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """Everything that documents say of one output; `missing` is why there is no reference."""

    output: str
    declared: Output
    release: Release
    title: str
    reference: str
    missing: str
    fingerprint: str
    sources: tuple[SourceView, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)

    def source(self, component: str) -> SourceView:
        """The view of one component; raises KeyError."""
        return next(s for s in self.sources if s.component == component)


def release_facts(
    flake: Flake, components: Mapping[str, Component], lock: Lock | None, name: str
) -> ReleaseFacts:
    """The facts of an output; raises E-NO-RELEASE for one that is no image."""
    output = flake.outputs[name]
    release = output.release
    if release is None:
        raise ReprobuildError(
            "E-NO-RELEASE", f"output {name} has no `release` table, so it has no documents"
        )
    facts = [_component(flake, components, lock, name, member) for member in output.components]
    reference, missing = _rendered(release, release.tag, facts)
    fingerprint = _rendered(release, release.cache_fingerprint, facts)[0]
    views = tuple(
        _view(flake, lock, name, component, fact)
        for component, fact in ((f.name, f) for f in facts)
        if component in output.sources
    )
    return ReleaseFacts(
        output=name,
        declared=output,
        release=release,
        title=release.title or f"{release.codename} {release.revision}",
        reference=f"{release.repository}:{reference}" if reference else "",
        missing=missing,
        fingerprint=fingerprint,
        sources=tuple(sorted(views, key=lambda view: _order(output, view.component))),
        versions={f.name: f.version for f in facts},
        commits={f.name: f.source.base for f in facts if f.source is not None},
    )


def _order(output: Output, component: str) -> int:
    """Documents name components in the order of the flake's `sources`."""
    return list(output.sources).index(component)


def _component(
    flake: Flake, components: Mapping[str, Component], lock: Lock | None, output: str, name: str
) -> ComponentFacts:
    declared = flake.outputs[output]
    spec = components[declared.described_by(name)]
    version = spec.version or ""
    pin = lock.inputs.get(spec.input or "") if lock else None
    wheel = flake.inputs.get(spec.input or "")
    if not version and isinstance(pin, FilesPin) and len(pin.files) == 1:
        version = pin.files[0].version
    if not version and wheel is not None and wheel.kind in ("wheel", "sdist"):
        version = wheel.version or ""
    wanted = declared.sources.get(name)
    if wanted is not None:
        source = _stated(flake, lock, output, name, wanted)
    elif isinstance(wheel, GitInput):
        rev = pin.rev if isinstance(pin, GitPin) else wheel.rev or ""
        tree = pin.tree if isinstance(pin, GitPin) else ""
        source = SourceFacts(wheel.url, wheel.ref, rev, tree)
    else:
        source = None
    return ComponentFacts(name, version, Digest.of(b""), source)


def _pin(lock: Lock | None, output: str, component: str) -> PinnedSource | None:
    pins = lock.outputs.get(output) if lock else None
    return pins.sources.get(component) if pins else None


def _stated(
    flake: Flake, lock: Lock | None, output: str, component: str, wanted: Source
) -> SourceFacts:
    pin = _pin(lock, output, component)
    declared = flake.inputs[wanted.input]
    assert isinstance(declared, (GitInput, FixtureInput))
    repository = declared.url if isinstance(declared, GitInput) else f"fixture:{declared.path}"
    ref = wanted.base or declared.ref
    return SourceFacts(
        repository,
        ref,
        wanted.base_commit or (pin.base if pin else ""),
        wanted.tree or (pin.tree if pin else ""),
    )


def _rendered(release: Release, text: str, facts: list[ComponentFacts]) -> tuple[str, str]:
    """The tag, or why there is none yet."""
    values = {
        name: value
        for name, value in tag_values(release, facts).items()
        if value and not name.endswith(".drv")
    }
    pattern = Pattern.parse(text)
    lacking = [f"{{{name}}}" for name in pattern.names() if name not in values]
    if lacking or not text:
        return "", ", ".join(lacking)
    return pattern.render(values), ""


def _view(
    flake: Flake, lock: Lock | None, output: str, component: str, fact: ComponentFacts
) -> SourceView:
    declared = flake.outputs[output]
    wanted = declared.sources[component]
    documents = declared.documents
    note = documents.components.get(component) if documents else None
    pin = _pin(lock, output, component)
    known = {head.number: head for head in pin.heads} if pin else {}
    heads = tuple(
        HeadFacts(
            head.number,
            head.head or (known[head.number].head if head.number in known else ""),
            head.title,
            head.summary,
            known[head.number].disposition if head.number in known else "",
        )
        for head in wanted.heads
    )
    assert fact.source is not None
    return SourceView(
        component=component,
        title=(note.title if note else "") or component,
        repository=fact.source.repository,
        branch=fact.source.ref.removeprefix("refs/heads/"),
        base=fact.source.base,
        tree=fact.source.tree,
        strategy=wanted.strategy,
        heads=heads,
        patch_sha256=wanted.patch_sha256 or (pin.patch_sha256 if pin else ""),
        version=fact.version,
        note=note.note if note else "",
        merged=note.merged if note else 0,
        pinned=pin is not None,
        resolutions=tuple((r.path, r.author, r.reason) for r in pin.resolutions) if pin else (),
        exclusions=tuple((e.number, e.disposition, e.reason) for e in wanted.exclusions),
    )


def _short(url: str) -> str:
    path = url.removesuffix("/").removesuffix(".git")
    return "/".join(path.split("/")[-2:]) if "://" in path else path
