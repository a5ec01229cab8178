"""A look into a store that costs next to nothing: a root's document, and whether a tree
or a record is there.

A run with nothing to do needs no more, and should not pay for importing the rest of the store.
It takes no lease: what a root keeps is not collected.
"""

from __future__ import annotations

from pathlib import Path

from reprobuild.adapters.store.layout import Layout, open_layout
from reprobuild.adapters.store.names import file_name


class Glance:
    """Read only; raises what `LocalStore.open` raises for a store that cannot be read."""

    def __init__(self, path: Path) -> None:
        self._layout: Layout = open_layout(path, create=False)

    def root(self, name: str) -> bytes | None:
        """A root's document, or None."""
        try:
            return (self._layout.directory("roots") / file_name(name)).read_bytes()
        except FileNotFoundError:
            return None

    def has_tree(self, hex_digest: str) -> bool:
        """Whether a tree's node is here; by the store's commit order the rest then is, too."""
        return Path(self._layout.tree(hex_digest)).exists()

    def has_realized(self, hex_digest: str) -> bool:
        """Whether a derivation's chosen record is here (see `Records.chosen`)."""
        try:
            text = self._layout.chosen(hex_digest).read_bytes()[:200]
        except OSError:
            return False
        action, _, record = text.decode("ascii", "replace").removesuffix("\n").partition("/")
        if len(action) != len(hex_digest) or len(record) != len(hex_digest):
            return False
        return (self._layout.records(action) / record).is_file()
