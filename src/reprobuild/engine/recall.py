"""The memo that makes a run with nothing to do nearly free.

`engine/results.py` writes, beside the root of each installable, a root `NAME@DIR=result` that
holds the answer under a fingerprint of all that decided it. Reading it needs no model, no graph
and no library.
"""

from __future__ import annotations

import json
import os

from reprobuild.core.blake import blake3_hex
from reprobuild.engine.fingerprint import fingerprint

TYPE_CHECKING = False  # `typing` takes longer to import than the answer to be read
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    class Glance(Protocol):
        """The little that is asked of a store."""

        def root(self, name: str) -> bytes | None:
            """A root's document, or None."""
            ...

        def has_tree(self, hex_digest: str) -> bool:
            """Whether a tree is here."""
            ...

        def has_realized(self, hex_digest: str) -> bool:
            """Whether the record is here that was chosen for a derivation."""
            ...

        def holds(self, path: str) -> bool:
            """Whether a path lies in the store, by its name."""
            ...


_PREFIX = "blake3:"


def root_name(installable: str, directory: str | os.PathLike[str]) -> str:
    """The root of an installable of the flake at `directory`."""
    return f"{installable}@{blake3_hex(os.fspath(directory).encode())[:12]}"


def memo_name(installables: Sequence[str], directory: str | os.PathLike[str]) -> str:
    """The root that remembers the answer for these installables together."""
    return root_name("+".join(installables) or "default", directory) + "=result"


def recall(
    store: Glance,
    directory: str | os.PathLike[str],
    installables: Sequence[str],
    wishes: Mapping[str, Any],
) -> dict[str, Any] | None:
    """The answer to exactly this question, if nothing that decides it has changed and all that
    it names is still here; None where the slow way has to be taken."""
    data = store.root(memo_name(installables, directory))
    if data is None:
        return None
    memo = json.loads(data)
    if memo["fingerprint"] != fingerprint(directory, memo["watched"], dict(wishes)):
        return None
    answer: dict[str, Any] = memo["answer"]
    trees = [entry["tree"].removeprefix(_PREFIX) for entry in answer["outputs"].values()]
    if not all(store.has_tree(tree) for tree in trees):
        return None
    # Other commands go by the record: what they cannot find must not be called made.
    drvs = [entry["drv"].removeprefix(_PREFIX) for entry in answer["outputs"].values()]
    if not all(store.has_realized(drv) for drv in drvs):
        return None
    # The store may be a copy of the one that it was written for.
    paths = [entry["path"] for entry in answer["outputs"].values()]
    if not all(store.holds(path) and os.path.exists(path) for path in paths):
        return None
    return answer
