"""A content store that lets go of a built-in when the run is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from reprobuild.core.derivation import InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.tree import File, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Loan


class CancellableContent:
    """Passes everything on; raises E-INTERRUPTED from the next call after `cancel` is set.

    Built-ins work in this process and cannot be killed, but all they do goes through the store.
    """

    def __init__(self, content: ContentStore, cancel: threading.Event) -> None:
        self._content = content
        self._cancel = cancel

    def _go_on(self) -> ContentStore:
        if self._cancel.is_set():
            raise ReprobuildError("E-INTERRUPTED", "stopped")
        return self._content

    def contains(self, tree: Digest) -> bool:
        """As `ContentStore.contains`."""
        return self._go_on().contains(tree)

    def tree(self, digest: Digest) -> Tree:
        """As `ContentStore.tree`."""
        return self._go_on().tree(digest)

    def open_blob(self, digest: Digest) -> BinaryIO:
        """As `ContentStore.open_blob`."""
        return self._go_on().open_blob(digest)

    def read_blob(self, file: File) -> bytes:
        """As `ContentStore.read_blob`."""
        return self._go_on().read_blob(file)

    def add_blob(self, source: BinaryIO, *, executable: bool = False, size: int = -1) -> File:
        """As `ContentStore.add_blob`."""
        return self._go_on().add_blob(source, executable=executable, size=size)

    def add_trees(self, nodes: Mapping[Digest, Tree]) -> None:
        """As `ContentStore.add_trees`."""
        self._go_on().add_trees(nodes)

    def capture(self, directory: Path, *, limit: int = 2**62) -> Digest:
        """As `ContentStore.capture`."""
        return self._go_on().capture(directory, limit=limit)

    def materialise(self, tree: Digest) -> Path:
        """As `ContentStore.materialise`."""
        return self._go_on().materialise(tree)

    def materialise_blob(self, digest: Digest, *, executable: bool) -> Path:
        """As `ContentStore.materialise_blob`."""
        return self._go_on().materialise_blob(digest, executable=executable)

    def lend(self, tree: Digest) -> Loan:
        """As `ContentStore.lend`."""
        return self._go_on().lend(tree)

    def changed(self, inputs: Iterable[InputContent]) -> Sequence[InputContent]:
        """As `ContentStore.changed`; never refused, since it is asked for before recording."""
        return self._content.changed(inputs)

    def barrier(self) -> None:
        """As `ContentStore.barrier`; never refused, since it only makes durable what is there."""
        self._content.barrier()
