"""What the last build of a derivation's name took and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest


@dataclass(frozen=True, slots=True)
class Past:
    """Bytes at the peak, milliseconds, the trees that it was given by input name, and the tree of
    what it included, where it told. An observation: it decides nothing that is reused."""

    peak_memory: int
    duration_ms: int
    trees: Mapping[str, Digest] = field(default_factory=dict)
    includes: Digest | None = None
