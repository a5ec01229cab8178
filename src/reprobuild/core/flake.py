"""The models of flake-like.toml: what is wanted. docs/language.md is their reference."""

from __future__ import annotations

import datetime
import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from reprobuild.core.component import Arch
from reprobuild.core.derivation import Isolation
from reprobuild.core.documents.model import Documents, Published
from reprobuild.core.gates import Gate
from reprobuild.core.integration.address import WITHOUT_SECRETS, secret_in
from reprobuild.core.integration.bounds import MAX_NUMBER
from reprobuild.core.profiles.model import Profile
from reprobuild.core.redact import redact_address
from reprobuild.core.schema import (
    Commit,
    EnvName,
    EnvValue,
    Format,
    GitRef,
    InnerPath,
    Model,
    Name,
    Reference,
    RelativePath,
    Sha256Text,
    problem,
)

FORMAT = 0


class GitInput(Model):
    """A git repository at a branch, tag or commit."""

    kind: Literal["git"]
    url: str
    ref: GitRef
    rev: Commit | None = None

    @field_validator("url")
    @classmethod
    def _url(cls, url: str) -> str:
        shown = repr(redact_address(url)[:80])
        # git gives meaning to `ext::…` and to a leading dash; neither is an address.
        if url.startswith("-") or "::" in url or any(ord(c) < 32 for c in url):
            raise problem("url", f"{shown} is no address of a git repository")
        if " " in url and not url.startswith("/"):
            raise problem("url", f"{shown} holds a space: write it as %20")
        if not url.startswith(("https://", "http://", "ssh://", "git://", "file://", "/")):
            raise problem(
                "url", f"{shown} needs a scheme: https, ssh, git, file, or an absolute path"
            )
        secret = secret_in(url)
        if secret:
            raise problem(
                "url",
                f"the address of {shown} holds {secret}, which would be published with all that "
                f"is made from it; {WITHOUT_SECRETS}",
            )
        return url


class FixtureInput(Model):
    """A git repository made on the fly from text in this project (docs/language.md)."""

    kind: Literal["fixture"]
    path: RelativePath
    ref: GitRef = "refs/heads/main"


_PACKAGE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._+-]*)\s*"
    r"(?:={1,2}\s*(?P<version>[A-Za-z0-9][A-Za-z0-9.+:~!_-]*))?\Z"
)


class _Packages(Model):
    _FORM: ClassVar[str] = "NAME==VERSION"
    _VERSIONED: ClassVar[bool] = True

    name: str | None = None
    version: str | None = None
    packages: tuple[str, ...] = ()

    @field_validator("packages")
    @classmethod
    def _written_well(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        seen: set[str] = set()
        for text in packages:
            match = _PACKAGE.match(text)
            if match is None:
                raise problem("package", f"{text[:80]!r} is no package; expected {cls._FORM}")
            if match["name"] in seen:
                raise problem("duplicate", f"package {match['name']!r} is listed twice")
            seen.add(match["name"])
        return packages

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if bool(self.packages) == bool(self.name) or (self.packages and self.version):
            raise problem("packages", "give either `name` and `version`, or a list of `packages`")
        for name, version in self.wanted():
            if version is None and self._VERSIONED:
                raise problem("version", f"{name!r} has no version; expected {self._FORM}")
            if self.name and not _PACKAGE.match(f"{name}={version}" if version else name):
                raise problem("package", f"{name[:80]!r}, {version!r} is no package and version")
        return self

    def wanted(self) -> tuple[tuple[str, str | None], ...]:
        """(name, version or None) for each package, in the order written."""
        if self.name:
            return ((self.name, self.version),)
        out: list[tuple[str, str | None]] = []
        for text in self.packages:
            name, _, version = text.replace("==", "=").partition("=")
            out.append((name.strip(), version.strip() or None))
        return tuple(out)


class WheelInput(_Packages):
    """Wheels from the package index that the user's pip is configured for."""

    kind: Literal["wheel"]
    python: str = "3.11"


class SdistInput(_Packages):
    """Source distributions from the same index; nothing of them is run to fetch them."""

    kind: Literal["sdist"]


class DebInput(_Packages):
    """Debian packages from the host's configured archive, or a mirror."""

    _FORM: ClassVar[str] = "NAME or NAME=VERSION"
    _VERSIONED: ClassVar[bool] = False

    kind: Literal["deb"]
    suite: str = "bookworm"
    architecture: Literal["amd64"] = "amd64"


class UrlInput(Model):
    """One file at an address."""

    kind: Literal["url"]
    url: str
    sha256: Sha256Text | None = None

    @field_validator("url")
    @classmethod
    def _url(cls, url: str) -> str:
        if not url.startswith(("https://", "http://", "file://")):
            shown = repr(redact_address(url)[:80])
            raise problem("url", f"{shown} needs a scheme: https, http or file")
        secret = secret_in(url)
        if secret:
            raise problem(
                "url",
                f"the address of {redact_address(url)[:80]!r} holds {secret}, which would be "
                "published with all that is made from it; leave it out: .netrc answers for the "
                "host, or a mirror in the user's configuration ([mirrors]) does",
            )
        return url


class OciInput(Model):
    """An image by digest: `registry/repository@sha256:…`, or `oci:PATH`."""

    kind: Literal["oci"]
    reference: str


class PathInput(Model):
    """A directory of this project."""

    kind: Literal["path"]
    path: RelativePath


Input = Annotated[
    GitInput | FixtureInput | WheelInput | SdistInput | DebInput | UrlInput | OciInput | PathInput,
    Field(discriminator="kind"),
]


class Toolchain(Model):
    """What builds run in: a root file system with a host compiler, and a CUDA toolkit."""

    root: Reference
    cuda: Reference | None = None


class Head(Model):
    """A pull request that is applied."""

    number: int = Field(gt=0, le=MAX_NUMBER)
    title: str = Field(default="", max_length=1000)
    head: Commit | None = None
    ref: GitRef | None = None
    commits: tuple[Commit, ...] | None = None
    summary: str = ""

    @property
    def full_ref(self) -> str:
        """The ref that leads to the head: `refs/pull/N/head` unless given."""
        return self.ref or f"refs/pull/{self.number}/head"


class SourcePatch(Model):
    """A patch file of this project, applied after the heads."""

    path: RelativePath
    sha256: Sha256Text
    title: str = ""


class Exclusion(Model):
    """A pull request that was looked at and left out, with a reason."""

    number: int = Field(gt=0, le=MAX_NUMBER)
    head: Commit
    disposition: Literal[
        "alternative", "experimental", "out_of_scope", "research-only", "superseded", "unsupported"
    ]
    reason: str


class Source(Model):
    """A component's source in one output: base, heads in order, and the tree to hit."""

    input: Name
    base: GitRef | None = None
    base_commit: Commit | None = None
    strategy: Literal["merge", "cherry_pick", "pinned_branch"] = "merge"
    composition_ref: GitRef | None = None
    composition_commit: Commit | None = None
    heads: tuple[Head, ...] = ()
    patches: tuple[SourcePatch, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    tree: Commit | None = None
    patch_sha256: Sha256Text | None = None

    @model_validator(mode="after")
    def _numbers_once(self) -> Source:
        seen: set[int] = set()
        for number in [h.number for h in self.heads] + [e.number for e in self.exclusions]:
            if number in seen:
                raise problem("duplicate", f"pull request {number} is named twice")
            seen.add(number)
        pinned = self.strategy == "pinned_branch"
        if pinned != (self.composition_ref is not None and self.composition_commit is not None):
            raise problem(
                "strategy",
                "composition-ref and composition-commit belong to strategy pinned_branch, "
                "which needs both",
            )
        return self


class Release(Model):
    """The facts by which an image is known."""

    codename: Name
    revision: Name
    date: datetime.date
    repository: str
    tag: str
    label_prefix: str = "local-inference"
    isolation: Isolation = Isolation.FULL
    model_revision: str | None = None
    title: str = ""
    cache_fingerprint: str = ""
    runtime: dict[Name, str] = Field(default_factory=dict)

    @field_validator("isolation", mode="before")
    @classmethod
    def _grade(cls, value: object) -> object:
        try:
            return Isolation(value)  # type: ignore[arg-type]
        except ValueError:
            grades = ", ".join(repr(g.value) for g in Isolation)
            raise problem("enum", f"{value!r} is no isolation grade; expected {grades}") from None

    @field_validator("label_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if value.startswith("org.opencontainers"):
            raise problem(
                "reserved", "the prefix org.opencontainers is reserved for OCI's own keys"
            )
        return value


class ImageConfig(Model):
    """What the container does when it is started."""

    base: Reference | None = None
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    caches: dict[EnvName, EnvValue] = Field(default_factory=dict)
    compression: Literal["gzip", "zstd", "none"] = "gzip"
    level: Annotated[int, Field(ge=1, le=12)] = 6
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    workdir: str = "/"
    user: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class Output(Model):
    """A named thing to make: a set of components, and an image of them where `release` is.

    `arch` is what device code is made for instead of what each cuda-module step says.
    """

    description: str = ""
    components: tuple[Name, ...] = Field(min_length=1)
    variants: dict[Name, Name] = Field(default_factory=dict)
    toolchain: Name | None = None
    arch: tuple[Arch, ...] = ()
    release: Release | None = None
    image: ImageConfig | None = None
    sources: dict[Name, Source] = Field(default_factory=dict)
    published: Published | None = None
    documents: Documents | None = None
    profiles: dict[Name, Profile] = Field(default_factory=dict)
    gates: dict[Name, Gate] = Field(default_factory=dict)
    interface: dict[Name, tuple[EnvName, ...]] = Field(default_factory=dict)
    abi: dict[Name, str] = Field(default_factory=dict)

    @field_validator("components")
    @classmethod
    def _once(cls, components: tuple[str, ...]) -> tuple[str, ...]:
        for name in components:
            if components.count(name) > 1:
                raise problem("duplicate", f"component {name!r} is listed twice")
        return components

    def described_by(self, component: str) -> str:
        """The name of the component file that describes a component in this output."""
        return self.variants.get(component, component)

    @model_validator(mode="after")
    def _whole(self) -> Output:
        if (self.release is None) != (self.image is None):
            raise problem("missing", "an image needs both tables, `release` and `image`")
        return self


class Policy(Model):
    """What realize, push and verify hold images of this project to (exit 9 where it fails).

    `isolation` is the least grade that a release may require, and that its records must have;
    `gates` are names of attested gates that an image must have passed; `licences` are patterns of
    allowed licences (`*` and `?`; none: all); `signers` are key ids, one of which must have
    signed the image's provenance.
    """

    isolation: Literal["full", "host-toolchain", "none"] = "none"
    gates: tuple[Name, ...] = ()
    licences: tuple[str, ...] = ()
    signers: tuple[Sha256Text, ...] = ()


_INCLUDE = re.compile(r"(?:[A-Za-z0-9_+-][A-Za-z0-9._+-]*/)+(?:\*|[A-Za-z0-9._+-]+)\.toml\Z")


class Part(Model):
    """A further file of the flake, named by its `include`: more inputs, toolchains, outputs."""

    format: Format
    inputs: dict[Name, Input] = Field(default_factory=dict)
    toolchains: dict[Name, Toolchain] = Field(default_factory=dict)
    outputs: dict[Name, Output] = Field(default_factory=dict)


class Flake(Model):
    """The whole file, with what it includes."""

    format: Format
    include: tuple[str, ...] = ()
    default: Name | None = None
    policy: Policy | None = None
    inputs: dict[Name, Input] = Field(default_factory=dict)
    toolchains: dict[Name, Toolchain] = Field(default_factory=dict)
    outputs: dict[Name, Output] = Field(default_factory=dict)

    @field_validator("include")
    @classmethod
    def _include(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not _INCLUDE.match(pattern) or pattern.startswith("derivations/"):
                raise problem(
                    "include",
                    f"{pattern[:80]!r} cannot be included; say DIRECTORY/NAME.toml, "
                    "or DIRECTORY/*.toml",
                )
        return patterns


__all__ = ["Flake", "InnerPath"]
