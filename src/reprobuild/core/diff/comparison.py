"""Everything that a comparison found, before it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprobuild.core.diff.causes import Cause, SourceDiff
    from reprobuild.core.diff.dag import GraphDiff
    from reprobuild.core.diff.hunks import Hunk
    from reprobuild.core.diff.kernels import ModuleDiff
    from reprobuild.core.diff.layers import LayersDiff
    from reprobuild.core.diff.side import Side
    from reprobuild.core.diff.sources import PackageChange
    from reprobuild.core.encoding import Value


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file of an integration tree. `heads` are the pull requests that its changed lines come
    from; `hunks` is None where it is no text, too long, or not at hand."""

    path: str
    status: str
    heads: tuple[int, ...] = ()
    hunks: tuple[Hunk, ...] | None = None

    @property
    def added(self) -> int:
        """Lines that the new side alone has."""
        return sum(line[:1] == "+" for hunk in self.hunks or () for line in hunk.lines)

    @property
    def removed(self) -> int:
        """Lines that the old side alone has."""
        return sum(line[:1] == "-" for hunk in self.hunks or () for line in hunk.lines)

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "added": self.added,
            "heads": list(self.heads),
            "hunks": None if self.hunks is None else [h.document() for h in self.hunks],
            "path": self.path,
            "removed": self.removed,
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class FilesDiff:
    """The files of one component's source that differ. `note` says what could not be had;
    `attributed` whether heads could be told."""

    files: tuple[FileChange, ...] = ()
    note: str = ""
    attributed: bool = False
    compared: bool = True


@dataclass(frozen=True, slots=True)
class OutputChange:
    """What a derivation came out as on both sides: store trees (hex), empty where not on record.

    `conflict` holds the different trees that one action gave.
    """

    name: str
    old: str = ""
    new: str = ""
    same_drv: bool = False
    conflict: tuple[str, ...] = ()
    isolation: tuple[str, str] = ("", "")

    @property
    def verdict(self) -> str:
        """`identical`, `changed`, `not-reproducible`, or `unknown`."""
        if self.conflict or (self.same_drv and self.old and self.new and self.old != self.new):
            return "not-reproducible"
        if not self.old or not self.new:
            return "unknown"
        return "identical" if self.old == self.new else "changed"

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "conflict": list(self.conflict),
            "derivation": self.name,
            "new": self.new or None,
            "old": self.old or None,
            "same_derivation": self.same_drv,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class ContentDiff:
    """The files of what a component puts into the image that differ, with their sizes in bytes."""

    files: tuple[tuple[str, str, int], ...] = ()
    """(path, status, size of the new file)"""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Touch:
    """What one head's files reach: keys of the graph's changes, those among them that are compiles
    of what they could read, and of how many such compiles. Where it could not be told what these
    read, every head reaches all of them."""

    keys: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    narrowed: int = 0
    told: bool = True


@dataclass(slots=True)
class Comparison:
    """All levels. A level that could not be compared is None or has a note."""

    old: Side
    new: Side
    sources: Mapping[str, SourceDiff] = field(default_factory=dict)
    packages: Mapping[str, Sequence[PackageChange]] = field(default_factory=dict)
    downgrades: Sequence[str] = ()
    release: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    labels: Mapping[str, tuple[Value, Value]] = field(default_factory=dict)
    environment: Mapping[str, tuple[Value, Value]] = field(default_factory=dict)
    serving: Mapping[str, tuple[Value, Value]] = field(default_factory=dict)
    graph: GraphDiff | None = None
    equal_derivations: int | None = None
    causes: Sequence[Cause] = ()
    files: Mapping[str, FilesDiff] = field(default_factory=dict)
    outputs: Mapping[str, OutputChange] = field(default_factory=dict)
    """By the key of the graph's change, or by a component's name where nothing changed."""
    component_outputs: Mapping[str, OutputChange] = field(default_factory=dict)
    content: Mapping[str, ContentDiff] = field(default_factory=dict)
    kernels: Mapping[str, Sequence[ModuleDiff]] | None = None
    kernels_note: str = ""
    layers: LayersDiff | None = None
    layers_note: str = ""
    touches: Mapping[tuple[str, int], Touch] = field(default_factory=dict)
    """By component and head; a head is not in it where that could not be told."""
    unit_kernels: Mapping[str, Sequence[ModuleDiff]] = field(default_factory=dict)
    """The device code of compiles that came out differently, by the graph's key."""
    nodes: Sequence[Mapping[str, Value]] = ()
    """The graph in groups, for drawing (graphview.py)."""
    notes: Sequence[str] = ()

    @property
    def not_reproducible(self) -> list[OutputChange]:
        """Outputs that one recipe gave in two ways."""
        every = [*self.outputs.values(), *self.component_outputs.values()]
        found = {o.name: o for o in every if o.verdict == "not-reproducible"}
        return list(found.values())
