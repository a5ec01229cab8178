"""The files of a sandbox's trees as an index, with symbolic links led as the sandbox would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest
from reprobuild.core.includes.index import FileIndex, Place
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree
from reprobuild.ports import ContentReader

MAX_LINKS = 40
"""Links that Linux follows on one way; more is an error there, so nothing is found."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What a symbolic link to a file needs in order to lead there: the entries (links, and the
    file) and directories that are passed."""

    entries: tuple[Place, ...]
    directories: tuple[Place, ...]


@dataclass(slots=True)
class Mounts:
    """All files of some trees. `kept_links` are links that lead to no file: they come along
    always, since any path may pass through them."""

    index: FileIndex
    entries: dict[Place, Entry] = field(default_factory=dict)
    behind: dict[Place, Behind] = field(default_factory=dict)
    kept_links: list[Place] = field(default_factory=list)
    directories: set[Place] = field(default_factory=set)

    def real(self, place: Place) -> tuple[Place, ...]:
        """What stands behind a file of the index: itself, or the links that are passed and the
        file where they lead."""
        behind = self.behind.get(place)
        return behind.entries if behind is not None else (place,)

    def directory_at(self, absolute: bytes) -> Place | None:
        """The directory to which an absolute path leads, through links and `..` too."""
        place = _Way(self).follow(absolute)
        return place if place in self.directories else None


def place_of(index: FileIndex, absolute: bytes) -> Place:
    """The innermost mount that holds an absolute path, and the path in it."""
    best: Place = (0, absolute.strip(b"/"))
    length = -1
    for number, at in enumerate(index.at):
        if (absolute == at or absolute.startswith(at + b"/")) and len(at) > length:
            best, length = (number, absolute[len(at) :].strip(b"/")), len(at)
    return best


def index_mounts(content: ContentReader, mounts: Sequence[tuple[str, Digest]]) -> Mounts:
    """Indexes trees by where they are shown."""
    walk = _Walk(content, Mounts(FileIndex()), [tree for _, tree in mounts])
    for at, _ in mounts:
        walk.mounts.index.add_mount(at)
    for number, (_, tree) in enumerate(mounts):
        walk.directory((number, b""), tree)
    walk.links()
    return walk.mounts


@dataclass(slots=True)
class _Walk:
    content: ContentReader
    mounts: Mounts
    roots: list[Digest]
    _trees: dict[Digest, Tree] = field(default_factory=dict)
    _links: list[Place] = field(default_factory=list)

    def directory(self, start: Place, digest: Digest) -> None:
        """Adds everything below a directory; links are only noted."""
        index, entries = self.mounts.index, self.mounts.entries
        stack = [(start, digest)]
        while stack:
            (mount, path), digest = stack.pop()
            self.mounts.directories.add((mount, path))
            for name, entry in self._tree(digest):
                place = (mount, path + b"/" + name if path else name)
                if isinstance(entry, Directory):
                    index.add_directory(place)
                    stack.append((place, entry.digest))
                    continue
                entries[place] = entry
                if isinstance(entry, File):
                    index.add(place, entry.digest)
                else:
                    self._links.append(place)

    def links(self) -> None:
        """Leads every link."""
        for link in self._links:
            way = _Way(self.mounts)
            found = way.follow(self.mounts.index.absolute(link))
            blob = self.mounts.entries.get(found) if found is not None else None
            if found is not None and isinstance(blob, File):
                self.mounts.index.add(link, blob.digest)
                self.mounts.behind[link] = Behind((*way.links, found), tuple(way.directories))
            else:
                target = found if found in self.mounts.directories else None
                self.mounts.index.add_link(link[1].rpartition(b"/")[2], target)
                self.mounts.kept_links.append(link)

    def _tree(self, digest: Digest) -> Tree:
        tree = self._trees.get(digest)
        if tree is None:
            tree = self._trees[digest] = self.content.tree(digest)
        return tree


@dataclass(slots=True)
class _Way:
    """One way through links, as Linux walks it."""

    mounts: Mounts
    links: list[Place] = field(default_factory=list)
    directories: list[Place] = field(default_factory=list)

    def follow(self, absolute: bytes) -> Place | None:
        """The file or directory where a path ends; None where it leads nowhere."""
        mounts, index = self.mounts, self.mounts.index
        here: list[bytes] = []
        todo = absolute.split(b"/")[::-1]
        place: Place = (0, b"")
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                del here[-1:]  # the top is its own parent
                place = place_of(index, b"/" + b"/".join(here))
                continue
            here.append(part)
            absolute = b"/" + b"/".join(here)
            place = place_of(index, absolute)
            entry = mounts.entries.get(place)
            if isinstance(entry, Symlink):
                self.links.append(place)
                if len(self.links) > MAX_LINKS:
                    return None
                here = [] if entry.target.startswith(b"/") else here[:-1]
                todo += entry.target.split(b"/")[::-1]
            elif place in mounts.directories:
                self.directories.append(place)
            elif not self._leads_to_mount(absolute) and (entry is None or any(todo)):
                return None
        return place

    def _leads_to_mount(self, absolute: bytes) -> bool:
        """Whether a directory is there because something is mounted below it."""
        return any(at.startswith(absolute + b"/") for at in self.mounts.index.at)
