"""The files of a sandbox's mounts, found by how their paths end.

Directories that are reached through symbolic links need no paths of their own: where a part of an
operand is `..` or the name of a link, what comes before it can lead anywhere, so only what comes
after it is compared. That is a larger set, and the same one whatever the links say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprobuild.core.digest import Digest

Place = tuple[int, bytes]
"""A file or directory: the number of its mount, and its path in that mount's tree."""

_OUTSIDE = frozenset((b"proc", b"dev", b"sys"))


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
    _found: dict[bytes, tuple[Place, ...]] = field(default_factory=dict)

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

    def candidates(self, operand: bytes) -> tuple[tuple[Place, ...], list[Place]]:
        """Every file that the operand could name, in any directory; and directories that must be
        there for its `..` to be walked."""
        parts = [part for part in operand.split(b"/") if part not in (b"", b".")]
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
        return self._ending_in(b"/".join(parts[start:])), directories

    def _ending_in(self, path: bytes) -> tuple[Place, ...]:
        found = self._found.get(path)
        if found is None:
            name = path.rpartition(b"/")[2]
            suffix, header = b"/" + path, b"/" + path + b".gch"
            candidates = [
                *((place, suffix) for place in self._by_name.get(name, ())),
                *((place, header) for place in self._by_name.get(name + b".gch", ())),
            ]
            places = [p for p, end in candidates if self.absolute(p).endswith(end)]
            places += [
                place
                for place in self._below_headers.get(name + b".gch", ())
                if self.absolute(place).rpartition(b"/")[0].endswith(header)
            ]
            found = self._found[path] = tuple(places)
        return found
