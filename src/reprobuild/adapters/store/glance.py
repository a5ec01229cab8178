"""A look into a store that costs next to nothing: a root's document, and whether a tree
or a record is there.

A run with nothing to do needs no more, and should not pay for importing the rest of the store.
It takes no lease: what a root keeps is not collected.
"""

from __future__ import annotations

import os

from reprobuild.adapters.store import paths
from reprobuild.adapters.store.reading import read_file


class Glance:
    """Read only. Nothing is raised: what cannot be read is not there."""

    def __init__(self, root: str) -> None:
        self._root = root

    @classmethod
    def into(cls, store: str) -> Glance | None:
        """A glance into the store at `store`, an absolute path; None where there is no store of
        a format that is known. `LocalStore.open` says what is wrong."""
        root = paths.data_directory(os.path.abspath(store))
        number = paths.format_number(_start_of(f"{root}/format") or b"")
        return None if number is None or number > paths.FORMAT else cls(root)

    def root(self, name: str) -> bytes | None:
        """A root's document, or None."""
        file = paths.file_name(name.encode("utf-8", "surrogateescape"))
        try:
            return read_file(f"{self._root}/roots/{file}")
        except OSError:
            return None

    def has_tree(self, hex_digest: str) -> bool:
        """Whether a tree's node is here; by the store's commit order the rest then is, too."""
        return os.path.exists(paths.sharded(self._root, "trees", hex_digest))

    def holds(self, path: str) -> bool:
        """Whether `path` is the name of something in this store: a copy of a store still has the
        original's paths in its documents."""
        return path.startswith(f"{self._root}/")

    def has_realized(self, hex_digest: str) -> bool:
        """Whether a derivation's chosen record is here (see `Records.chosen`)."""
        text = _start_of(paths.sharded(self._root, "chosen", hex_digest))
        if text is None:
            return False
        action, _, rest = text.decode("ascii", "replace").partition("/")
        record, _, drv = rest.partition("/")
        if drv != f"{hex_digest}\n" or not len(action) == len(record) == len(hex_digest):
            return False
        return os.path.isfile(f"{self._root}/records/{action}/{record}")


def _start_of(path: str) -> bytes | None:
    """The first 200 bytes of a file; None where it cannot be read."""
    try:
        return read_file(path, 200)
    except OSError:
        return None
