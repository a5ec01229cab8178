"""Published forms made into the parts of a flake. Nothing that a form carries is dropped: what a
flake has no key for becomes a note beside the entry."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.address import check_stated, repository_name
from reprobuild.core.integration.contract import Contract, ContractSection
from reprobuild.core.integration.manifest import Manifest
from reprobuild.core.integration.model import Exclusion, HeadSpec, SourcePatch, Strategy, pull_ref
from reprobuild.core.integration.upstream import UpstreamLock
from reprobuild.errors import ReprobuildError

_TAG = re.compile(r"(?P<codename>.+?)-vllm.*-(?P<date>\d{8})-(?P<revision>[A-Za-z0-9]+)\Z")
UNKNOWN_BASE = "the form does not say which commit the base was: `lock` finds it by the tree"


@dataclass(frozen=True, slots=True)
class ImportedSource:
    """One component's source. `base` is None where the form does not say the commit."""

    component: str
    url: str
    ref: str
    strategy: Strategy
    heads: tuple[HeadSpec, ...]
    base: GitOid | None = None
    tree: GitOid | None = None
    patches: tuple[SourcePatch, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    composition_ref: str = ""
    composition: GitOid | None = None
    summaries: dict[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedRelease:
    """What an image reference says of a release. `tag` is a pattern over the components' trees."""

    codename: str
    revision: str
    date: datetime.date
    repository: str
    tag: str
    title: str


@dataclass(frozen=True, slots=True)
class Imported:
    """A project to start from."""

    output: str
    sources: tuple[ImportedSource, ...]
    release: ImportedRelease | None = None
    notes: tuple[str, ...] = ()


def component_name(text: str) -> str:
    """A component's name out of a repository's or a section's: lower case, no dots."""
    name = re.sub(r"[^a-z0-9_+-]+", "-", text.lower()).strip("-+_")[:80]
    if not name:
        raise ReprobuildError("E-NAME", f"{text[:80]!r} gives no component name", got=text[:80])
    return name


def _note(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def from_lock(lock: UpstreamLock, file: str) -> ImportedSource:
    """Out of a published integration or source lock."""
    notes = [f"from {file} ({lock.name})"]
    if lock.patch_sha256 is not None:
        notes.append(f"published patch_sha256: {lock.patch_sha256.hex}")
    if lock.manifest_sha256 is not None:
        notes.append(f"published manifest sha256: {lock.manifest_sha256.hex}")
    for number, disposition in lock.dispositions.items():
        if disposition.value not in ("merged", "cherry_picked", "recorded_in_composition"):
            notes.append(f"published disposition of #{number}: {disposition.value}")
    url, ref = lock.repository, lock.base_ref
    if lock.composition_repository and lock.composition_repository != lock.repository:
        notes.append(f"the base is {lock.base_ref} of {lock.repository}")
        url, ref = lock.composition_repository, lock.composition_ref
    for head in lock.heads:
        if head.merge_commit is not None:
            notes.append(f"#{head.number} was merged by {head.merge_commit}")
    for candidate, integrated in lock.candidates:
        notes.append(f"candidate {candidate} was integrated as {integrated}")
    notes += [f"{key}: {_note(str(value))[:2000]}" for key, value in lock.extra.items()]
    merge = lock.strategy is Strategy.MERGE
    return ImportedSource(
        component=component_name(repository_name(lock.repository)),
        url=url,
        ref=ref,
        strategy=lock.strategy,
        heads=tuple(_tidy(h, merge=merge) for h in lock.heads),
        base=lock.base,
        tree=lock.tree,
        patches=lock.patches,
        composition_ref=lock.composition_ref,
        composition=lock.composition,
        notes=tuple(_note(n) for n in notes),
    )


def from_manifest(manifest: Manifest, file: str) -> ImportedSource:
    """Out of a composition manifest: it pins heads, not the base."""
    merge = manifest.strategy is Strategy.MERGE
    return ImportedSource(
        component=component_name(repository_name(manifest.repository)),
        url=manifest.repository,
        ref=manifest.base_ref,
        strategy=manifest.strategy,
        heads=tuple(_tidy(h, merge=merge) for h in manifest.heads),
        patches=manifest.patches,
        exclusions=manifest.exclusions,
        composition_ref=manifest.composition_ref,
        composition=manifest.composition,
        notes=(
            _note(f"from {file} ({manifest.name}), sha256 {manifest.sha256.hex}"),
            "a manifest follows its branch: `lock` pins the base where the branch is then",
        ),
    )


def _tidy(head: HeadSpec, *, merge: bool) -> HeadSpec:
    """Leaves out what is the default anyway."""
    ref = "" if head.ref == pull_ref(head.number) else head.ref
    commits = () if merge and head.commits == (head.head,) else head.commits
    return HeadSpec(head.number, head.head, head.title, ref, commits)


def from_contract(contract: Contract, file: str, owner: str = "") -> Imported:
    """Out of a source merge contract. `owner` (an address like https://github.com/NAME) is where
    the repositories live, when the text has no link that says it."""
    forge = owner.rstrip("/") or contract.forge
    sources = tuple(_section(contract, s, file, forge) for s in contract.sections)
    notes = [_note(f"from {file}: {contract.title}")]
    if contract.number is not None:
        notes.append(f"contract #{contract.number}")
    if contract.image:
        notes.append(f"published image: {contract.image}")
    if contract.digest is not None:
        notes.append(f"published registry digest: {contract.digest}")
    notes += [
        _note(f"line {number} of {file} could not be read: {text}")
        for number, text in contract.unread
    ]
    release = _release(contract, sources)
    output = component_name(release.codename + "-" + release.revision) if release else "release"
    return Imported(output, sources, release, tuple(notes))


def _section(contract: Contract, section: ContractSection, file: str, forge: str) -> ImportedSource:
    repositories = {h.repository for h in section.heads}
    if len(repositories) > 1:
        raise ReprobuildError(
            "E-CONTRACT",
            f"{file}:{section.line}: {section.name} has heads of several repositories: "
            + ", ".join(sorted(repositories)),
            file=file,
            line=section.line,
        )
    owners = {h.owner for h in section.heads if h.owner}
    place = forge
    if len(owners) == 1:
        place = f"{(forge or 'https://github.com/x').rpartition('/')[0]}/{owners.pop()}"
    if not place:
        raise ReprobuildError(
            "E-CONTRACT",
            f"{file}: nothing in the text says where {section.name} lives",
            hint="name it with --forge https://github.com/OWNER",
            file=file,
            line=section.line,
        )
    repository = repositories.pop() if repositories else section.name
    return ImportedSource(
        component=component_name(section.name),
        url=check_stated(f"{place}/{repository}.git"),
        ref=f"refs/heads/{section.branch}",
        strategy=Strategy(section.strategy) if section.strategy else Strategy.MERGE,
        heads=tuple(HeadSpec(h.number, h.head, h.title) for h in section.heads),
        base=section.base,
        tree=section.tree,
        summaries={h.number: h.summary for h in section.heads if h.summary},
        notes=(UNKNOWN_BASE,) if section.tree is not None and section.base is None else (),
    )


def _release(contract: Contract, sources: tuple[ImportedSource, ...]) -> ImportedRelease | None:
    repository, _, tag = contract.image.rpartition(":")
    match = _TAG.match(tag) if repository else None
    if match is None:
        return None
    try:
        date = datetime.date.fromisoformat(
            f"{match['date'][:4]}-{match['date'][4:6]}-{match['date'][6:]}"
        )
    except ValueError:
        return None
    codename, revision = match["codename"], match["revision"]
    middle = tag[len(codename) : len(tag) - len(f"-{match['date']}-{revision}")]
    for source in sources:
        if source.tree is not None:
            pattern = f"{source.component}{{{source.component}.tree:7}}"
            middle = middle.replace(source.component + source.tree.hex[:7], pattern)
    return ImportedRelease(
        codename=codename,
        revision=revision,
        date=date,
        repository=repository,
        tag="{codename}" + middle + "-{date}-{revision}",
        title=contract.title[:1000],
    )
