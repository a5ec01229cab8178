"""Pinning one thing: an input, or a component's source in one output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reprobuild.core.digest import Digest, GitOid, Sha256
from reprobuild.core.flake import (
    DebInput,
    FixtureInput,
    GitInput,
    Input,
    OciInput,
    PathInput,
    SdistInput,
    Source,
    UrlInput,
    WheelInput,
)
from reprobuild.core.integration.model import (
    Exclusion,
    HeadRequest,
    SourcePatch,
    SourcePin,
    SourceRequest,
    Strategy,
    resolution_document,
)
from reprobuild.core.lock import (
    FilesPin,
    GitPin,
    OciPin,
    PathPin,
    Pin,
    PinnedFile,
    PinnedHead,
    PinnedResolution,
    PinnedSource,
)
from reprobuild.core.origins import spec_digest
from reprobuild.core.pins import FilePin
from reprobuild.errors import ReprobuildError


class FileDiscovery(Protocol):
    """Finds files by what they are called; the only network use of `lock` besides git."""

    def wheel(self, name: str, version: str, *, python: str) -> FilePin:
        """The wheel of exactly that version."""
        ...

    def sdist(self, name: str, version: str) -> FilePin:
        """The source archive of exactly that version."""
        ...

    def debs(
        self, suite: str, architecture: str, components: Sequence[str], packages: Sequence[str]
    ) -> Sequence[FilePin]:
        """Debian packages, `name` or `name=version`, in order."""
        ...

    def url(self, url: str) -> FilePin:
        """What an address gives now."""
        ...

    def path(self, path: str) -> Digest:
        """A directory of the project, stored."""
        ...

    def oci(self, reference: str) -> Sha256:
        """The manifest an image reference names."""
        ...


class GitDiscovery(Protocol):
    """Resolves refs, and integrates heads to learn their tree."""

    def tip(self, declared: GitInput | FixtureInput, rev: str | None) -> tuple[GitOid, GitOid]:
        """The commit at the input's ref (or `rev`) and its tree."""
        ...

    def source(self, declared: GitInput | FixtureInput, request: SourceRequest) -> SourcePin:
        """Base and heads pinned, and the tree they give."""
        ...

    def text(self, declared: FixtureInput) -> Digest:
        """The digest of a fixture's text."""
        ...


DEBIAN_COMPONENTS = ("main",)


@dataclass(frozen=True, slots=True)
class Pinner:
    """Makes pins out of declarations."""

    files: FileDiscovery
    git: GitDiscovery

    def input(self, name: str, declared: Input) -> Pin:
        """Pins an input as it is found now; raises what its discovery raises."""
        spec = spec_digest(declared).hex
        if isinstance(declared, (GitInput, FixtureInput)):
            rev, tree = self.git.tip(declared, getattr(declared, "rev", None))
            return GitPin.model_validate(
                {
                    "kind": declared.kind,
                    "spec": spec,
                    "ref": declared.ref,
                    "rev": rev.hex,
                    "tree": tree.hex,
                    "text": self.text(declared),
                }
            )
        if isinstance(declared, PathInput):
            return PathPin(kind="path", spec=spec, tree=self.files.path(declared.path).hex)
        if isinstance(declared, OciInput):
            return OciPin(kind="oci", spec=spec, digest=self.files.oci(declared.reference).hex)
        return FilesPin(
            kind=declared.kind,
            spec=spec,
            files=tuple(_pinned_file(file) for file in self._files(name, declared)),
        )

    def text(self, declared: Input) -> str | None:
        """The digest of a fixture's text; None for any other input."""
        return self.git.text(declared).hex if isinstance(declared, FixtureInput) else None

    def directory(self, declared: Input) -> str | None:
        """The tree of a project's directory as it is now; None for any other input, and where the
        directory is not here: what is pinned may be in a store."""
        if not isinstance(declared, PathInput):
            return None
        try:
            return self.files.path(declared.path).hex
        except ReprobuildError as error:
            if error.code != "E-FETCH":
                raise
            return None

    def _files(
        self, name: str, declared: WheelInput | SdistInput | DebInput | UrlInput
    ) -> Sequence[FilePin]:
        if isinstance(declared, UrlInput):
            pin = self.files.url(declared.url)
            if declared.sha256 is not None and declared.sha256 != pin.sha256.hex:
                raise ReprobuildError(
                    "E-FETCH-MISMATCH",
                    f"input {name}: the address gives {pin.sha256}, the flake says "
                    f"sha256:{declared.sha256}",
                    hint="find out why it differs; the new content is accepted by writing its "
                    f"sha256 under [inputs.{name}] in the flake",
                    input=name,
                    key=f"inputs.{name}.sha256",
                    expected=declared.sha256,
                    got=pin.sha256.hex,
                )
            return [pin]
        wanted = declared.wanted()
        if isinstance(declared, DebInput):
            packages = [f"{n}={v}" if v else n for n, v in wanted]
            return self.files.debs(
                declared.suite, declared.architecture, DEBIAN_COMPONENTS, packages
            )
        found: list[FilePin] = []
        for package, version in wanted:
            if version is None:
                raise ReprobuildError(
                    "E-FLAKE",
                    f"inputs.{name}: {package} has no version",
                    key=f"inputs.{name}",
                    hint=f"say which: {package}==VERSION; a release states the versions it takes",
                )
            if isinstance(declared, WheelInput):
                found.append(self.files.wheel(package, version, python=declared.python))
            else:
                found.append(self.files.sdist(package, version))
        return found

    def source(
        self, declared: GitInput | FixtureInput, wanted: Source, known: PinnedSource | None
    ) -> PinnedSource:
        """Pins a component's source. What `known` says of base and heads stays as it is."""
        pin = self.git.source(declared, source_request(declared, wanted, known))
        integration = pin.integration
        if wanted.tree is not None and wanted.tree != integration.tree.hex:
            raise ReprobuildError(
                "E-TREE-MISMATCH",
                f"the heads give tree {integration.tree}, but {wanted.tree} is published",
                expected=wanted.tree,
                got=integration.tree.hex,
            )
        patch = integration.patch_sha256.hex
        if wanted.patch_sha256 is not None and wanted.patch_sha256 != patch:
            raise ReprobuildError(
                "E-TREE-MISMATCH",
                f"the heads give a patch of sha256:{patch}, but sha256:{wanted.patch_sha256} "
                "is published",
                expected=wanted.patch_sha256,
                got=patch,
            )
        explicit = {head.number: head.commits for head in wanted.heads}
        return PinnedSource(
            spec=spec_digest(wanted).hex,
            strategy=pin.spec.strategy.value,
            base_ref=wanted.base or declared.ref,
            base=pin.spec.base.hex,
            heads=tuple(
                PinnedHead(
                    number=head.number,
                    head=head.head.hex,
                    disposition=head.disposition.value,  # type: ignore[arg-type]  # the enum has these values
                    squashed_in_base=head.squashed_in_base,
                    commits=explicit.get(head.number),
                )
                for head in integration.heads
            ),
            resolutions=tuple(
                PinnedResolution.model_validate(resolution_document(r))
                for head in integration.heads
                for r in head.resolved
            ),
            composition=pin.spec.composition.hex if pin.spec.composition else None,
            tree=integration.tree.hex,
            patch_sha256=integration.patch_sha256.hex,
            patch_digest=integration.patch_digest.hex,
        )


def _pinned_file(pin: FilePin) -> PinnedFile:
    return PinnedFile(
        name=pin.name,
        version=pin.version,
        filename=pin.filename,
        size=pin.size,
        sha256=pin.sha256.hex,
        location="" if "://" in pin.location else pin.location,
    )


def source_request(
    declared: GitInput | FixtureInput, wanted: Source, known: PinnedSource | None
) -> SourceRequest:
    """What has to be pinned of a component's source; what `known` says of it stays as it is."""
    ref = wanted.base or declared.ref
    base = wanted.base_commit or (known.base if known and known.base_ref == ref else None)
    before = {head.number: head.head for head in known.heads} if known else {}
    heads = tuple(
        HeadRequest(
            number=head.number,
            ref=head.ref or "",
            rev=_oid(head.head or before.get(head.number)),
            title=head.title,
            commits=tuple(GitOid.parse(c) for c in head.commits or ()),
        )
        for head in wanted.heads
    )
    return SourceRequest(
        url=declared.url if isinstance(declared, GitInput) else "",
        ref=ref,
        rev=_oid(base),
        strategy=Strategy(wanted.strategy),
        heads=heads,
        patches=tuple(SourcePatch(p.path, Sha256.parse(p.sha256), p.title) for p in wanted.patches),
        exclusions=tuple(
            Exclusion(e.number, GitOid.parse(e.head), e.disposition, e.reason)
            for e in wanted.exclusions
        ),
        composition_ref=wanted.composition_ref or "",
        composition=_oid(wanted.composition_commit),
        tree=_oid(wanted.tree),
    )


def _oid(text: str | None) -> GitOid | None:
    return GitOid.parse(text) if text is not None else None
