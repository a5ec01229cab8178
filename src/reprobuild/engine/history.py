"""What earlier builds of a derivation's name took and read: for estimates and explanations.

Nothing here decides what is reused. Losing it costs a worse schedule and a shorter explanation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Protocol

from reprobuild.core.derivation import Derivation, InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.past import Past
from reprobuild.core.record import Record
from reprobuild.core.tree import File
from reprobuild.engine.scheduler import Cost
from reprobuild.ports import ContentStore

INCLUDES = "includes"
"""The output in which a compile leaves its dependency file (core/kinds/cuda_commands.py)."""

_FETCH_MEMORY = 64 * 2**20
_MARGIN = 64 * 2**20
_UNKNOWN_MS = 15_000
_MOST_CHANGES = 200


class History(Protocol):
    """Remembers the last build of each name. May forget."""

    def get(self, name: str) -> Past | None:
        """The last build that `put` was told of."""
        ...

    def put(self, name: str, past: Past) -> None:
        """Remembers."""
        ...


class NoHistory:
    """Remembers nothing."""

    def get(self, name: str) -> Past | None:
        """Nothing."""
        return None

    def put(self, name: str, past: Past) -> None:
        """Forgets at once."""


def expected_cost(derivation: Derivation, past: Past | None) -> Cost:
    """What a build will probably take: as much as the last time and a little more; the first
    time, what its recipe guesses."""
    if derivation.fixed is not None:
        return Cost(cores=0, memory=_FETCH_MEMORY)
    memory = derivation.hints.memory
    if past is not None and past.peak_memory:
        memory = past.peak_memory * 11 // 10 + _MARGIN
    return Cost(derivation.hints.cores, memory)


def expected_duration(derivation: Derivation, past: Past | None) -> int:
    """Milliseconds, at least 1."""
    if past is not None:
        return max(1, past.duration_ms)
    return _UNKNOWN_MS if derivation.argv else 1000


def remember(
    history: History, record: Record, derivation: Derivation, inputs: Mapping[str, InputContent]
) -> None:
    """Takes note of a build in the sandbox."""
    if not derivation.argv:
        return
    trees = {name: found.digest for name, found in inputs.items() if not found.is_file}
    includes = record.outputs.get(INCLUDES)
    peak = record.peak_memory
    if not peak and (past := history.get(record.name)) is not None:
        peak = past.peak_memory  # a server does not say; what it took here is still the best guess
    history.put(record.name, Past(peak, record.duration_ms, trees, includes))


@dataclass(frozen=True, slots=True)
class Surplus:
    """Why a unit was compiled again: paths that it could read and that changed (at most 200), and
    whether the compiler had really included one of them the last time."""

    changed: tuple[str, ...]
    included: bool


def surplus(
    content: ContentStore,
    past: Past,
    derivation: Derivation,
    inputs: Mapping[str, InputContent],
) -> Surplus | None:
    """Compares what a unit is given with the last time; None where that cannot be told."""
    if past.includes is None or not content.contains(past.includes):
        return None
    changed: list[str] = []
    for entry in derivation.inputs:
        before, now = past.trees.get(entry.name), inputs[entry.name]
        if before is None or now.is_file or entry.at is None or not content.contains(before):
            return None
        for path in _differences(content, before, now.digest):
            changed.append(entry.at.rstrip("/") + "/" + path)
            if len(changed) >= _MOST_CHANGES:
                break
    told = _dependencies(content, past.includes)
    if told is None or not changed:
        return None
    return Surplus(tuple(changed), any(path in told for path in changed))


def _differences(content: ContentStore, first: Digest, second: Digest) -> Iterator[str]:
    from reprobuild.core.diff.trees import compare_trees

    for change in compare_trees(lambda tree: content.tree(tree).encode(), first, second):
        yield change.path.decode(errors="surrogateescape")


def _dependencies(content: ContentStore, includes: Digest) -> set[str] | None:
    """The files that a dependency file in Make's syntax names."""
    for _, entry in content.tree(includes):
        if isinstance(entry, File):
            with content.open_blob(entry.digest) as file:
                text = file.read().decode(errors="surrogateescape")
            words = text.replace("\\\n", " ").partition(":")[2].replace("\\ ", "\0").split()
            return {normpath(word.replace("\0", " ")) for word in words}
    return None
