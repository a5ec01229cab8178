"""What moving content between stores needs of the world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Protocol

from reprobuild.core.bundle.format import Entry, Index
from reprobuild.core.digest import Digest
from reprobuild.core.tree import File
from reprobuild.ports import Catalog, ContentStore


class TransferStore(ContentStore, Catalog, Protocol):
    """A store that content is moved out of or into."""

    def has_blob(self, file: File) -> bool:
        """Whether the content is here with that size, in either mode."""
        ...

    def roots(self) -> Sequence[str]:
        """The names of all roots."""
        ...

    def require_space(self, wanted: int) -> None:
        """Raises E-DISK-SPACE when fewer than `wanted` bytes are free."""
        ...


class OpenBundle(Protocol):
    """A bundle whose index was checked; its content is verified while it is read."""

    @property
    def index(self) -> Index:
        """Manifest, pieces, objects."""
        ...

    @property
    def digest(self) -> Digest:
        """What names the bundle."""
        ...

    def entries(self, wanted: list[bool]) -> Iterator[tuple[Entry, BinaryIO]]:
        """The wanted objects in order, each to be drained before the next; E-BUNDLE."""
        ...
