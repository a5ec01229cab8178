"""What `verify` says, and what it knows while it looks."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

from reprobuild.core.tree import Tree, decode


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

    def say(self, kind: str, thing: str, path: str, reason: str) -> None:
        """Notes a problem."""
        self.problems.append(Problem(kind, thing, path, reason))


class Nodes(MutableMapping[str, Tree]):
    """Directory nodes by their digest's digits; kept as bytes, since few are looked into again."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        """Adds a node by its bytes, which are sound."""
        self._data[name] = data

    def bytes(self, name: str) -> bytes:
        """A node as it was put."""
        return self._data[name]

    def __getitem__(self, name: str) -> Tree:
        return decode(self._data[name])

    def __setitem__(self, name: str, tree: Tree) -> None:
        self._data[name] = tree.encode()

    def __delitem__(self, name: str) -> None:
        del self._data[name]

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


@dataclass(slots=True)
class Known:
    """What was found to be good."""

    blobs: dict[str, int] = field(default_factory=dict)
    """`<hex>` or `<hex>.x` → size."""
    inodes: dict[int, str] = field(default_factory=dict)
    """Inodes of good blobs with a second link → their key in `blobs`."""
    trees: Nodes = field(default_factory=Nodes)
    drvs: set[str] = field(default_factory=set)
    records: set[tuple[str, str]] = field(default_factory=set)
    aside: set[tuple[str, str]] = field(default_factory=set)
    """Records in quarantine."""
