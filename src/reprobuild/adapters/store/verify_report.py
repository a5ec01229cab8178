"""What `verify` says, and what it knows while it looks."""

from __future__ import annotations

from dataclasses import dataclass, field

from reprobuild.core.tree import Tree


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is off.

    `kind` is `damaged` (content is not what the name says), `missing` (referred to, not here),
    `misplaced` (no place for such a file), `mode` (permissions, times, links).
    """

    kind: str
    object: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.object}: {self.reason} ({self.path})"


@dataclass(slots=True)
class Report:
    """What was looked at, and every problem, sorted by path."""

    problems: list[Problem] = field(default_factory=list)
    blobs: int = 0
    trees: int = 0
    drvs: int = 0
    records: int = 0
    roots: int = 0
    materialised: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Known:
    """What was found to be good."""

    blobs: dict[str, int] = field(default_factory=dict)
    """`<hex>` or `<hex>.x` → size."""
    inodes: dict[int, str] = field(default_factory=dict)
    """Inodes of good blobs with a second link → their key in `blobs`."""
    trees: dict[str, Tree] = field(default_factory=dict)
    drvs: set[str] = field(default_factory=set)
    records: set[tuple[str, str]] = field(default_factory=set)
    aside: set[tuple[str, str]] = field(default_factory=set)
    """Records in quarantine."""
