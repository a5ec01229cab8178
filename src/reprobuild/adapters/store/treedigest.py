"""The digest that a directory has as a tree, without a store."""

from __future__ import annotations

import os

from reprobuild.adapters.store.taker import Naming
from reprobuild.adapters.store.taking import Taking

TYPE_CHECKING = False  # as typing has it, without importing that: a process that hashes is short
if TYPE_CHECKING:
    from reprobuild.core.digest import Digest


def tree_digest_hex(directory: str | os.PathLike[str]) -> str:
    """What `ContentStore.capture` would return for `directory`, as hex digits; writes nothing.

    Raises E-OUTPUT-SPECIAL, E-OUTPUT-CHANGED and E-OUTPUT-READ, each with the path.
    """
    return Taking(os.fspath(directory), Naming()).run().hex()


def tree_digest(directory: str | os.PathLike[str]) -> Digest:
    """The same as a digest."""
    from reprobuild.core.digest import Digest

    return Digest(tree_digest_hex(directory))
