"""One side of a comparison in its normal form, whatever it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprobuild.core.encoding import Value

if TYPE_CHECKING:
    from reprobuild.core.integration.model import IntegrationSpec


@dataclass(frozen=True, slots=True)
class Head:
    """A pull request's pinned commit; `disposition` and `title` are empty where not known."""

    number: int
    head: str
    disposition: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ComponentSide:
    """What one side says of a component. Texts are empty where it does not say.

    `tree` is the git integration tree; `drv` and `output` the derivation and the store tree of
    what the component puts into the image. `spec` and `origin` say how the source is integrated,
    where that is known; `content` is the store tree of a source that is a plain directory.
    `inputs` names what its derivations are made of.
    """

    name: str
    version: str = ""
    repository: str = ""
    ref: str = ""
    base: str = ""
    strategy: str = ""
    heads: tuple[Head, ...] = ()
    tree: str = ""
    patch_sha256: str = ""
    patch_digest: str = ""
    drv: str = ""
    output: str = ""
    archs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    spec: IntegrationSpec | None = None
    origin: Mapping[str, Value] = field(default_factory=dict)
    content: str = ""


@dataclass(frozen=True, slots=True)
class Package:
    """One file of an input."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True, slots=True)
class InputSide:
    """A pinned input: packages, or one content (`digest`) with the commit it came from."""

    name: str
    kind: str
    digest: str = ""
    rev: str = ""
    packages: tuple[Package, ...] = ()
    toolchain: bool = False


@dataclass(frozen=True, slots=True)
class LayerSide:
    """A layer; sizes in bytes, None where not known. `component` is empty for a base's layers."""

    component: str
    diff_id: str
    digest: str = ""
    size: int | None = None
    uncompressed: int | None = None


@dataclass(frozen=True, slots=True)
class ImageSide:
    """An image as a daemon, registry or layout describes it, or as its recipe plans it."""

    reference: str = ""
    config_digest: str = ""
    manifest_digest: str = ""
    layers: tuple[LayerSide, ...] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    serving: Mapping[str, Value] = field(default_factory=dict)
    """What is run and how: entrypoint, cmd, workdir, user."""


@dataclass(frozen=True, slots=True)
class Side:
    """A release side. `release` holds flat facts (`codename`, `revision`, `runtime.cuda`…).

    `roots` are the drv digests (hex) by role from which the derivations are compared; `covers`
    names the levels that this side can speak of: a level that either lacks is not compared.
    """

    name: str
    kind: str
    release: Mapping[str, str] = field(default_factory=dict)
    components: Mapping[str, ComponentSide] = field(default_factory=dict)
    inputs: Mapping[str, InputSide] | None = None
    image: ImageSide | None = None
    roots: Mapping[str, str] = field(default_factory=dict)
    output_name: str = ""
    isolation: str = ""
    """The weakest isolation that the records of what is in the image really had; empty: unknown."""
    notes: tuple[str, ...] = ()

    @property
    def basis(self) -> str:
        """What kind of document the facts are out of."""
        return "evaluated" if self.kind in ("installable", "git") else self.kind
