"""Damaged and missing objects brought back from equal content elsewhere on this machine.

A blob may also lie in its other mode, or in a directory that was made of a tree; a directory node
can be told from such a directory; and another store may have either. Nothing is believed: what is
taken is hashed on its way. A damaged file is replaced by one rename, so a cut leaves either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.hashing import new_hasher
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.staging import Staging
from reprobuild.adapters.store.verify_report import Known, Problem
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.tree import DOMAIN, Directory, Entry, File, Symlink, Tree, decode
from reprobuild.errors import ReprobuildError

_PIECE = 4 * 2**20


class Restorer:
    """Brings objects back and notes them in `known`; `others` are stores to look into, too."""

    def __init__(self, layout: Layout, known: Known, others: Sequence[Layout]) -> None:
        self._layout = layout
        self._known = known
        self._others = others
        self._home = f"{layout.root}/materialised"
        self._staging = Staging(layout)
        self.restored: list[str] = []
        """`blob <key>`, `tree <hex>`."""
        self.elsewhere: set[str] = set()
        """Trees that are good where they were found, and cannot be put into their place."""
        self.blocked: list[str] = []
        """What is not the store's and lies in the place of what was damaged or missing."""

    def run(self, problems: Iterable[Problem]) -> None:
        """Tries for all that is damaged or missing; raises OSError when the disk refuses."""
        lost = {p.object for p in problems if p.kind in ("damaged", "missing")}
        trees = [name.removeprefix("tree ") for name in lost if name.startswith("tree ")]
        blobs = {name.removeprefix("blob ") for name in lost if name.startswith("blob ")}
        try:
            self._trees(sorted(trees))
            blobs |= self._needed()
            self._blobs(blobs)
        finally:
            self._staging.close()
        places = [self._layout.tree(name) for name in trees]
        places += [self._layout.blob(key.removesuffix(".x"), key.endswith(".x")) for key in blobs]
        self.blocked = sorted({found for place in places if (found := _stranger(place))})

    def _needed(self) -> set[str]:
        """Blobs that trees refer to and that are not good here."""
        return {
            key
            for tree in self._known.trees.values()
            for _, entry in tree.entries
            if isinstance(entry, File) and (key := _key(entry)) not in self._known.blobs
        }

    # -- directory nodes -----------------------------------------------------------------------

    def _trees(self, wanted: list[str]) -> None:
        places = self._places() if wanted else {}
        while wanted:
            name = wanted.pop()
            if name in self._known.trees:
                continue
            found = self._node(name, places.get(name, []))
            if found is None:
                continue
            for digest, tree in found.items():
                if digest not in self._known.trees:
                    if self._put(self._layout.tree(digest), tree.encode()):
                        self.restored.append(f"tree {digest}")
                    else:
                        self.elsewhere.add(f"tree {digest}")
                    self._known.trees[digest] = tree
            children = [
                entry.digest.hex
                for tree in found.values()
                for _, entry in tree.entries
                if isinstance(entry, Directory)
            ]
            wanted += [child for child in children if child not in self._known.trees]

    def _node(self, name: str, directories: Iterable[str]) -> dict[str, Tree] | None:
        for directory in (f"{self._home}/{name}", *directories):
            try:
                nodes: dict[str, Tree] = {}
                if _read_tree(directory, nodes) == name:
                    return nodes
            except (OSError, ReprobuildError):
                continue
        for other in self._others:
            try:
                data = read_file(other.tree(name))
            except OSError:
                continue
            if tagged(DOMAIN, data).hex == name:
                return {name: decode(data)}
        return None

    def _places(self) -> dict[str, list[str]]:
        """Where trees that are not known lie in directories made of known ones."""
        found: dict[str, list[str]] = {}
        for path, entry in self._made():
            if isinstance(entry, Directory) and entry.digest.hex not in self._known.trees:
                found.setdefault(entry.digest.hex, []).append(path)
        return found

    # -- blobs ---------------------------------------------------------------------------------

    def _blobs(self, wanted: set[str]) -> None:
        wanted = {key for key in wanted if key not in self._known.blobs}
        if not wanted:
            return
        digests = {key.removesuffix(".x") for key in wanted}
        places: dict[str, list[str]] = {}
        for path, entry in self._made():
            if isinstance(entry, File) and entry.digest.hex in digests:
                places.setdefault(entry.digest.hex, []).append(path)
        for key in sorted(wanted):
            for path in self._candidates(key.removesuffix(".x"), places):
                if self._take(path, key):
                    break

    def _candidates(self, digest: str, places: dict[str, list[str]]) -> Iterator[str]:
        for layout in (self._layout, *self._others):
            for executable in (False, True):
                yield layout.blob(digest, executable)
        for suffix in (".f", ".x"):
            yield f"{self._home}/{digest}{suffix}"
        yield from places.get(digest, [])

    def _take(self, path: str, key: str) -> bool:
        """Copies a file to a blob's place if it has its content; whether it has.

        Hashed while it is copied: what is hashed is what is kept, whatever becomes of the file.
        """
        digest = key.removesuffix(".x")
        try:
            source = open(path, "rb", buffering=0, opener=_no_link)  # noqa: SIM115 - closed below
        except OSError:
            return False
        temporary = self._staging.temporary()
        hasher, size = new_hasher(), 0
        with source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                return False
            fd = durable.create(temporary, 0o555 if key.endswith(".x") else 0o444)
            try:
                while piece := _read(source):
                    durable.write(fd, piece)
                    hasher.update(piece)
                    size += len(piece)
                durable.utime(fd)
                durable.fsync(fd)
            finally:
                os.close(fd)
        if hasher.hexdigest() != digest:
            durable.unlink(temporary)
            return False
        if self._name(temporary, self._layout.blob(digest, key.endswith(".x"))):
            self.restored.append(f"blob {key}")
        self._known.blobs[key] = size
        return True

    # -- both ----------------------------------------------------------------------------------

    def _made(self) -> Iterator[tuple[str, Entry]]:
        """(path, what should be there) of all in the directories that were made of known trees."""
        try:
            names = os.listdir(self._home)
        except FileNotFoundError:
            return
        for name in sorted(names):
            if name not in self._known.trees:
                continue
            stack = [(f"{self._home}/{name}", self._known.trees[name])]
            while stack:
                here, tree = stack.pop()
                for child, entry in tree.entries:
                    path = f"{here}/{os.fsdecode(child)}"
                    yield path, entry
                    if isinstance(entry, Directory):
                        below = self._known.trees.get(entry.digest.hex)
                        if below is not None:
                            stack.append((path, below))

    def _put(self, target: str, data: bytes) -> bool:
        temporary = self._staging.temporary()
        fd = durable.create(temporary)
        try:
            durable.write(fd, data)
            durable.fsync(fd)
        finally:
            os.close(fd)
        return self._name(temporary, target)

    def _name(self, temporary: str, target: str) -> bool:
        """Whether it could get its name: what is not the store's is not replaced for it."""
        shard = Path(target).parent
        if _stranger(target):
            durable.unlink(temporary)
            return False
        durable.ensure_directory(shard)
        durable.rename(temporary, target)
        durable.sync_directory(shard)
        durable.sync_directory(shard.parent)
        return True


def _stranger(target: str) -> str:
    """What lies in the way of an object's file and is none; empty when nothing does."""
    for path, kind in ((os.path.dirname(target), stat.S_IFDIR), (target, stat.S_IFREG)):
        try:
            if stat.S_IFMT(os.lstat(path).st_mode) != kind:
                return path
        except FileNotFoundError:
            break
    return ""


def _key(entry: File) -> str:
    return entry.digest.hex + (".x" if entry.executable else "")


def _read_tree(directory: str, nodes: dict[str, Tree]) -> str:
    """The digest of a directory of the disk; adds all its nodes, children first.

    Raises OSError, and ReprobuildError where it is no tree (too deep, say).
    """
    entries: dict[bytes, Entry] = {}
    with os.scandir(directory) as listing:
        found = sorted(listing, key=lambda entry: entry.name)
    for entry in found:
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            made: Entry = Directory(Digest(_read_tree(entry.path, nodes)))
        elif stat.S_ISLNK(info.st_mode):
            made = Symlink(os.readlink(os.fsencode(entry.path)))
        else:
            made = _read_file(entry.path, info)
        entries[os.fsencode(entry.name)] = made
    tree = Tree.of(entries)
    nodes[tree.digest.hex] = tree
    return tree.digest.hex


def _read_file(path: str, info: os.stat_result) -> File:
    hasher, size = new_hasher(), 0
    with open(path, "rb", buffering=0, opener=_no_link) as file:
        while piece := file.read(_PIECE):
            hasher.update(piece)
            size += len(piece)
    return File(Digest(hasher.hexdigest()), size, bool(info.st_mode & 0o100))


def _read(source: FileIO) -> bytes:
    """The next piece; nothing where the disk gives no more: the digest then tells."""
    try:
        return source.read(_PIECE) or b""
    except OSError:
        return b""


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
