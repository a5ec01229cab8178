"""A look into a store that costs next to nothing: a root's document, and whether a tree is there.

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
