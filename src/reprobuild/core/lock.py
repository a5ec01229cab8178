"""The models of flake-like.lock: every input pinned to content, and every integration tree.

An output that cannot be pinned yet is *open*: it says why, and alone fails.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reprobuild.core.integration.bounds import MAX_NUMBER
from reprobuild.core.schema import Blake3Text, Commit, Format, Model, Name, Sha256Text

FORMAT = 0


class PinnedFile(Model):
    """One downloaded file. `location` is a place inside its archive, never a host."""

    name: str = ""
    version: str = ""
    filename: str
    size: int = Field(ge=0)
    sha256: Sha256Text
    location: str = ""


class FilesPin(Model):
    """A wheel, sdist, deb or url input. `spec` is the digest of the declaration it pins."""

    kind: Literal["wheel", "sdist", "deb", "url"]
    spec: Blake3Text
    files: tuple[PinnedFile, ...]


class GitPin(Model):
    """A git or fixture input at its ref. `text` is the digest of a fixture's text."""

    kind: Literal["git", "fixture"]
    spec: Blake3Text
    ref: str
    rev: Commit
    tree: Commit
    text: Blake3Text | None = None


class PathPin(Model):
    """A directory of the project."""

    kind: Literal["path"]
    spec: Blake3Text
    tree: Blake3Text


class OciPin(Model):
    """An image."""

    kind: Literal["oci"]
    spec: Blake3Text
    digest: Sha256Text


Pin = Annotated[FilesPin | GitPin | PathPin | OciPin, Field(discriminator="kind")]


class PinnedHead(Model):
    """A head as it was applied."""

    number: int = Field(gt=0, le=MAX_NUMBER)
    head: Commit
    disposition: Literal["merged", "cherry_picked", "already_in_base", "recorded_in_composition"]
    squashed_in_base: bool = False
    commits: tuple[Commit, ...] | None = None


class PinnedResolution(Model):
    """A reviewed answer to a conflict that a source's integration took (resolutions/*.json)."""

    path: str
    ancestor: Commit | None = None
    ours: Commit | None = None
    theirs: Commit | None = None
    result: Commit | None = None
    author: str
    reason: str
    content: str = ""
    executable: bool = False


class PinnedSource(Model):
    """A component's source in one output."""

    spec: Blake3Text
    strategy: str
    base_ref: str
    base: Commit
    heads: tuple[PinnedHead, ...] = ()
    resolutions: tuple[PinnedResolution, ...] = ()
    composition: Commit | None = None
    tree: Commit
    patch_sha256: Sha256Text
    patch_digest: Blake3Text


class PinnedUnits(Model):
    """What a pattern of a cuda-module's units matched; `spec` is of its tree and the pattern."""

    component: Name
    step: Name
    pattern: str
    spec: Blake3Text
    files: tuple[str, ...]


class PinnedOutput(Model):
    """The sources of one output; `open` says what could not be pinned, and why.

    `units` are lists of what patterns match in trees that are known by their recipes alone.
    """

    open: dict[str, str] = Field(default_factory=dict)
    units: tuple[PinnedUnits, ...] = ()
    sources: dict[Name, PinnedSource] = Field(default_factory=dict)


class Lock(Model):
    """The whole file."""

    format: Format
    inputs: dict[Name, Pin] = Field(default_factory=dict)
    open: dict[str, str] = Field(default_factory=dict)
    outputs: dict[Name, PinnedOutput] = Field(default_factory=dict)
