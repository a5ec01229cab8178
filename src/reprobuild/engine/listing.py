"""Which files patterns of units match: read from the lock, or from trees that are at hand.

The list that counts is the lock's; `lock` makes it out of the trees themselves, by realizing what
patterns look into. Where a tree is only tried (`--override`), its own files are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.component import Component, CudaModuleStep
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.kinds.context import Located
from reprobuild.core.kinds.cuda_units import listing_digest, matching
from reprobuild.core.lock import Lock, PinnedUnits
from reprobuild.core.tree import Directory, File
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore


@dataclass(frozen=True, slots=True)
class Listing:
    """A pattern of a step's units, and the tree that it looks into."""

    component: str
    step: str
    tree: Located
    pattern: str
    exclude: tuple[str, ...]

    @property
    def digest(self) -> Digest:
        """What its list is kept under."""
        return listing_digest(self.tree, self.pattern, self.exclude)


Lister = Callable[[Listing], tuple[str, ...] | None]
"""The files that match, where their tree is at hand; else None."""


def listed(
    asked: Listing, known: Sequence[PinnedUnits], lister: Lister | None, output: str
) -> tuple[str, ...]:
    """The files; raises E-LOCK-MISSING, E-LOCK-STALE, or E-COMPONENT where nothing matches."""
    digest = asked.digest.hex
    found = next((row.files for row in known if row.spec == digest), None)
    if found is None and lister is not None:
        found = lister(asked)
    where = f"{asked.component}.{asked.step}"
    if found is None:
        stale = any((row.component, row.step) == (asked.component, asked.step) for row in known)
        raise ReprobuildError(
            "E-LOCK-STALE" if stale else "E-LOCK-MISSING",
            f"output {output}: which units of {where} match {asked.pattern!r} is not listed"
            + (" for the tree as it is now" if stale else ""),
            key=where,
        )
    if not found:
        raise ReprobuildError(
            "E-COMPONENT",
            f"{where}: no file matches the unit {asked.pattern!r}",
            component=asked.component,
            hint="patterns are relative to the unit's tree: `*` stays within a directory, "
            "`**` spans any number of them",
        )
    return found


def files_of(content: ContentStore, root: Digest, asked: Listing) -> tuple[str, ...]:
    """The files of a tree that match, below the place that is looked into."""
    below = root
    for name in asked.tree.path.encode().split(b"/") if asked.tree.path else ():
        entry = content.tree(below).get(name)
        if not isinstance(entry, Directory):
            return ()
        below = entry.digest
    return matching(_walk(content, below), asked.pattern, asked.exclude)


def _walk(content: ContentStore, root: Digest) -> Iterator[bytes]:
    stack = [(b"", root)]
    while stack:
        path, digest = stack.pop()
        for name, entry in content.tree(digest):
            if isinstance(entry, Directory):
                stack.append((path + name + b"/", entry.digest))
            elif isinstance(entry, File):
                yield path + name


def has_patterns(components: Mapping[str, Component]) -> bool:
    """Whether any unit of any component is a pattern."""
    return any(
        unit.is_pattern
        for component in components.values()
        for step in component.steps.values()
        if isinstance(step, CudaModuleStep)
        for unit in step.units
    )


@dataclass(slots=True)
class Lists:
    """Makes the lists of one output: from the lock that there was, else from the tree itself.

    `realize` makes a derivation of the graph real and gives the tree of an output of it.
    """

    graph: Graph
    old: Lock | None
    content: ContentStore
    realize: Callable[[Graph, Located], Digest]
    made: dict[str, PinnedUnits] = field(default_factory=dict)

    def __call__(self, asked: Listing) -> tuple[str, ...]:
        """The files, noted in `made`."""
        digest = asked.digest.hex
        files = self._known(digest)
        if files is None:
            files = files_of(self.content, self.realize(self.graph, asked.tree), asked)
        self.made[digest] = PinnedUnits(
            component=asked.component,
            step=asked.step,
            pattern=asked.pattern,
            spec=digest,
            files=files,
        )
        return files

    def _known(self, digest: str) -> tuple[str, ...] | None:
        for output in self.old.outputs.values() if self.old else ():
            for row in output.units:
                if row.spec == digest:
                    return row.files
        return None

    @property
    def rows(self) -> tuple[PinnedUnits, ...]:
        """The lists, in the order in which a lock has them."""
        return tuple(
            sorted(self.made.values(), key=lambda row: (row.component, row.step, row.pattern))
        )
