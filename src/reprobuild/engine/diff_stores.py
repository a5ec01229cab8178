"""What a comparison reads of a store, and of a bundle that stands for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.ports import CatalogReader, ContentReader

if TYPE_CHECKING:
    from reprobuild.core.bundle.manifest import Manifest


class Store(ContentReader, CatalogReader, Protocol):
    """Content and what is known about it, in one, to be read."""

    def node(self, digest: Digest) -> bytes:
        """The verified bytes of a directory node; raises E-STORE-MISSING."""
        ...


class Carried(Store, Protocol):
    """A bundle as a store."""

    @property
    def manifest(self) -> Manifest:
        """What it says of itself."""
        ...

    @property
    def digest(self) -> Digest:
        """What names the bundle."""
        ...

    def signatures(self) -> Value:
        """The list of signatures, unverified; raises E-BUNDLE."""
        ...

    def expected(self) -> Mapping[str, Mapping[str, str]]:
        """What recipes came out as where it was made: trees (hex) by drv (hex) and output."""
        ...
