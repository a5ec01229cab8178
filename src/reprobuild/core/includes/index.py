"""The files of a sandbox's mounts, found by how their paths end.

Directories that are reached through symbolic links need no paths of their own: where a part of an
operand is `..` or the name of a link, what comes before it can lead anywhere, so only what comes
after it is compared. That is a larger set, and the same one whatever the links say. A path without
them leads from a directory that is searched, or from that of the file that asks, straight down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest

Place = tuple[int, bytes]
"""A file or directory: the number of its mount, and its path in that mount's tree."""

_OUTSIDE = frozenset((b"proc", b"dev", b"sys"))


@dataclass(frozen=True, slots=True)
class Search:
    """The compiler's list of directories: where they lie, links led; those that are not there are
    left out."""

    directories: frozenset[bytes]


@dataclass(slots=True)
class FileIndex:
    """All files of some mounts; `at` gives each mount's absolute place in the sandbox."""

    at: list[bytes] = field(default_factory=list)
    blobs: dict[Place, Digest] = field(default_factory=dict)
    link_names: set[bytes] = field(default_factory=set)
    """Names of symbolic links that lead to no file: directories, or nothing."""
    alphabet: set[int] = field(default_factory=set)
    _by_name: dict[bytes, list[Place]] = field(default_factory=dict)
    _below_headers: dict[bytes, list[Place]] = field(default_factory=dict)
    _directories: dict[bytes, list[Place]] = field(default_factory=dict)
    _found: dict[bytes, dict[bytes, list[Place]]] = field(default_factory=dict)

    def add_mount(self, at: str) -> int:
        """A new mount; its number."""
        self.at.append(at.rstrip("/").encode())
        self.alphabet.update(self.at[-1])
        return len(self.at) - 1

    def add(self, place: Place, blob: Digest) -> None:
        """A file, or a symbolic link that leads to a file of that content."""
        self.blobs[place] = blob
        directory, _, name = place[1].rpartition(b"/")
        self._by_name.setdefault(name, []).append(place)
        self.alphabet.update(name)
        # A precompiled header may be a directory x.h.gch with the variants in it.
        around = directory.rpartition(b"/")[2]
        if around.endswith(b".gch"):
            self._below_headers.setdefault(around, []).append(place)

    def add_directory(self, place: Place) -> None:
        """A directory."""
        name = place[1].rpartition(b"/")[2]
        self.alphabet.update(name)
        self._directories.setdefault(name, []).append(place)

    def add_link(self, name: bytes, target: Place | None) -> None:
        """A symbolic link that leads to a directory (`target`) or nowhere."""
        self.alphabet.update(name)
        self.link_names.add(name)
        if target is not None:
            self._directories.setdefault(name, []).append(target)

    def absolute(self, place: Place) -> bytes:
        """Where the sandbox shows it."""
        return self.at[place[0]] + b"/" + place[1]

    def can_tell(self, operand: bytes) -> bool:
        """Whether an operand leads to files of the mounts alone, if anywhere.

        `/proc/self/root/…` and its like lead back to any of them by another name.
        """
        return not any(part in _OUTSIDE for part in operand.split(b"/")[:-1]) or not (
            {b"root", b"cwd", b"fd"} & set(operand.split(b"/"))
        )

    def candidates(
        self, path: bytes, search: Search | None = None
    ) -> tuple[Sequence[Place], list[Place]]:
        """Every file that a path could name; and directories that must be there for its `..`.

        With `search`, files count only in the directories that are searched: unless the path is
        absolute, or goes through `..` or a link, and so anywhere.
        """
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        start = 0
        directories: list[Place] = []
        for at, part in enumerate(parts[:-1]):
            if part == b"..":
                start = at + 1
                if at and parts[at - 1] != b"..":
                    directories += self._directories.get(parts[at - 1], ())
            elif part in self.link_names:
                start = at + 1
        if not parts or parts[-1] == b"..":
            return (), directories
        found = self._ending_in(b"/".join(parts[start:]))
        if search is None or start or path.startswith(b"/"):
            return [place for places in found.values() for place in places], directories
        return [
            place
            for directory, places in found.items()
            for place in places
            if directory in search.directories
        ], directories

    def beside(self, place: Place, path: bytes) -> Sequence[Place]:
        """The files that a quoted path names beside a file, where it is no way through `..` or
        links (those are `candidates` anywhere)."""
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        if not parts:
            return ()
        directory = self.absolute(place).rpartition(b"/")[0]
        return self._ending_in(b"/".join(parts)).get(directory, ())

    def is_plain(self, path: bytes) -> bool:
        """Whether a path goes straight down from where it begins: no `..`, no link, no root."""
        parts = path.split(b"/")[:-1]
        return bool(parts or path) and not (
            path.startswith(b"/")
            or path.endswith((b"/..", b".."))
            or any(part == b".." or part in self.link_names for part in parts)
        )

    def _ending_in(self, path: bytes) -> dict[bytes, list[Place]]:
        """Files whose path ends in this one, by the directory in which it begins."""
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = {}
            name = path.rpartition(b"/")[2]
            suffix, header = b"/" + path, b"/" + path + b".gch"
            candidates = [
                *((place, suffix, self.absolute(place)) for place in self._by_name.get(name, ())),
                *(
                    (place, header, self.absolute(place))
                    for place in self._by_name.get(name + b".gch", ())
                ),
                *(
                    (place, header, self.absolute(place).rpartition(b"/")[0])
                    for place in self._below_headers.get(name + b".gch", ())
                ),
            ]
            for place, end, absolute in candidates:
                if absolute.endswith(end):
                    found.setdefault(absolute[: -len(end)], []).append(place)
        return found
