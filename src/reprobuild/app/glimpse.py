"""A run with nothing to do, without an `App`: the remembered answer of a plain `realize`."""

from __future__ import annotations

import os

from reprobuild import whereabouts
from reprobuild.adapters.store.glance import Glance
from reprobuild.engine.recall import recall

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def last_answer(
    directory: str | None, store: str | None, names: Sequence[str]
) -> dict[str, Any] | None:
    """What `-C directory --store store realize NAMES…` last answered, where that still holds.

    None where there is no flake, no store or no such answer: the long way says why. Raises
    ValueError and KeyError for a memo that is none.
    """
    flake = whereabouts.flake_directory(directory)
    if flake is None:
        return None
    place = whereabouts.store_directory(store, os.environ.get("REPROBUILD_STORE"), flake)
    glance = Glance.into(place)
    return None if glance is None else recall(glance, flake, names, {"isolation": None})
