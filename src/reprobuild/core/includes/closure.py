"""The files a translation unit could read, out of all that its sandbox would show.

From the unit and what the compiler includes by itself, every operand is followed, and *every*
file whose path ends in that operand is taken, in whichever directory it lies. So a file that would
shadow another is in the set by construction, as is what another pass of the compiler would find.
Precompiled headers (`x.h.gch`) count as what they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest
from reprobuild.core.includes.macros import Definition, resolve
from reprobuild.core.includes.scan import Scan

Place = tuple[int, bytes]
"""A file: the number of its mount, and its path in that mount's tree."""


@dataclass(slots=True)
class FileIndex:
    """All files of some mounts, found by how their paths end.

    `at` gives each mount's absolute place in the sandbox; `add` takes its files. A path that leads
    through symbolic links to directories is added with those links' own paths, so that they come
    along.
    """

    at: list[bytes] = field(default_factory=list)
    blobs: dict[Place, Digest] = field(default_factory=dict)
    links: dict[Place, tuple[Place, ...]] = field(default_factory=dict)
    """For a file reached through links: the entries (links, and the real file) it stands for."""
    _by_name: dict[bytes, list[Place]] = field(default_factory=dict)
    _directories: dict[bytes, list[Place]] = field(default_factory=dict)
    _found: dict[bytes, tuple[Place, ...]] = field(default_factory=dict)

    def add_mount(self, at: str) -> int:
        """A new mount; its number."""
        self.at.append(at.rstrip("/").encode())
        return len(self.at) - 1

    def add(self, place: Place, blob: Digest, through: tuple[Place, ...] = ()) -> None:
        """A file."""
        self.blobs[place] = blob
        if through:
            self.links[place] = through
        self._by_name.setdefault(place[1].rpartition(b"/")[2], []).append(place)

    def add_directory(self, place: Place) -> None:
        """A directory, for operands with `..` in them."""
        self._directories.setdefault(place[1].rpartition(b"/")[2], []).append(place)

    def absolute(self, place: Place) -> bytes:
        """Where the sandbox shows it."""
        return self.at[place[0]] + b"/" + place[1]

    def ending_in(self, operand: bytes) -> tuple[Place, ...]:
        """Every file whose absolute path ends in `operand`, whole components only."""
        found = self._found.get(operand)
        if found is None:
            suffix = b"/" + operand.lstrip(b"/")
            found = self._found[operand] = tuple(
                place
                for place in self._by_name.get(operand.rpartition(b"/")[2], ())
                if (b"/" + place[1]).endswith(suffix) or self.absolute(place).endswith(suffix)
            )
        return found

    def directories_ending_in(self, path: bytes) -> list[Place]:
        """Every directory whose path ends in `path`."""
        suffix = b"/" + path
        return [
            place
            for place in self._directories.get(path.rpartition(b"/")[2], ())
            if self.absolute(place).endswith(suffix)
        ]


@dataclass(slots=True)
class Closure:
    """The set for one unit. `unresolved` holds macro operands that could not be told: where it is
    not empty, the set is not the whole truth and the unit needs its whole trees."""

    files: set[Place] = field(default_factory=set)
    directories: set[Place] = field(default_factory=set)
    unresolved: set[bytes] = field(default_factory=set)


def close(
    index: FileIndex,
    starts: Iterable[bytes],
    scan_of: Callable[[Digest], Scan],
    defines: Mapping[bytes, Sequence[Definition]],
) -> Closure:
    """Follows operands from `starts` until nothing new turns up.

    `defines` are macros from the command line. Macro operands are looked at again whenever a new
    definition of their name was found.
    """
    result = Closure()
    known: dict[bytes, list[Definition]] = {n: list(d) for n, d in defines.items()}
    pending: set[tuple[bytes, bytes | None]] = set()
    seen: set[bytes] = set()
    queue: list[bytes] = list(starts)
    while queue or pending:
        while queue:
            operand = queue.pop()
            if operand in seen:
                continue
            seen.add(operand)
            for place in _candidates(index, operand, result):
                if place in result.files:
                    continue
                result.files.add(place)
                found = scan_of(index.blobs[place])
                queue += found.operands
                pending.update(found.macros)
                for name, parameters, body in found.defines:
                    known.setdefault(name, []).append((parameters, body))
        # Definitions found later may resolve uses seen earlier, so each use is tried at the end.
        resolved: set[bytes] = set()
        result.unresolved = set()
        for name, argument in pending:
            operands = resolve(name, argument, known)
            if operands is None:
                result.unresolved.add(name)
            else:
                resolved |= operands
        queue = [operand for operand in resolved if operand not in seen]
        if not queue:
            return result
    return result


def _candidates(index: FileIndex, operand: bytes, result: Closure) -> Iterable[Place]:
    parts = [part for part in operand.split(b"/") if part not in (b"", b".")]
    plain = parts
    if b".." in parts:
        plain = []
        for part in parts:
            if part != b"..":
                plain.append(part)
                continue
            if plain:
                # The way down and up again must exist for the compiler to walk it.
                result.directories.update(index.directories_ending_in(b"/".join(plain)))
                plain.pop()
    if not plain:
        return ()
    path = b"/".join(plain)
    return (*index.ending_in(path), *index.ending_in(path + b".gch"))
