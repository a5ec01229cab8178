"""oci-rootfs: the root file system of an image as a tree, its layers one over the other.

Input `base-0`, an image layout. Parameter `architecture`. Whiteouts take away what lies beneath;
an entry below a link goes to where the link leads, inside the root, as container engines do it;
hard links become copies; devices, sockets and pipes are left out (a sandbox has its own); modes
shrink to the executable bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from reprobuild.adapters.builders.archive import DEFAULT_LIMIT, Budget, entry_path, refuse
from reprobuild.adapters.builders.below import MAX_LINKS, OPAQUE, WHITEOUT
from reprobuild.adapters.builders.decompress import decompressed
from reprobuild.adapters.builders.params import Params
from reprobuild.adapters.builders.tarread import DAMAGE, entries
from reprobuild.adapters.oci.storelayout import load_image
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

Parts = tuple[bytes, ...]


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-IMAGE, E-ARCHIVE… for layers that are off."""
    read = Params("oci-rootfs", params, ("architecture",))
    if set(inputs) != {"base-0"}:
        raise ReprobuildError("E-PARAMS", "oci-rootfs takes the input `base-0`")
    root = _Node()
    image = load_image(content, inputs["base-0"], read.text("architecture", "amd64"))
    for layer, file in image.blobs:
        label = f"layer {layer.digest} of the image"
        with content.open_blob(file.digest) as source:
            magic = source.read(8)
        with content.open_blob(file.digest) as source:
            _Layer(content, root, label, Budget(label, file.size, DEFAULT_LIMIT)).apply(
                source, magic
            )
    nodes: dict[Digest, Tree] = {}
    digest = root.store(nodes)
    content.add_trees(nodes)
    return {"out": digest}


@dataclass(slots=True)
class _Node:
    """A directory."""

    children: dict[bytes, _Node | File | Symlink] = field(default_factory=dict)

    def store(self, nodes: dict[Digest, Tree]) -> Digest:
        found: dict[bytes, Entry] = {
            name: Directory(child.store(nodes)) if isinstance(child, _Node) else child
            for name, child in self.children.items()
        }
        tree = Tree.of(found)
        nodes[tree.digest] = tree
        return tree.digest


@dataclass(slots=True)
class _Layer:
    content: ContentStore
    root: _Node
    label: str
    budget: Budget
    own: set[Parts] = field(default_factory=set)
    """What this layer put there: its whiteouts do not take that away."""

    def apply(self, source: BinaryIO, magic: bytes) -> None:
        name = b""
        try:
            for archive, info in entries(decompressed(source, magic)):
                self.budget.take_entry()
                self.budget.take_bytes(info.size)
                name = info.name.encode("utf-8", "surrogateescape").lstrip(b"/")
                parts = entry_path(self.label, name)
                if not parts:
                    continue
                if parts[-1] == OPAQUE:
                    self._clear(self._resolve(parts[:-1]))
                elif parts[-1].startswith(WHITEOUT):
                    self._remove(self._resolve(parts[:-1]), parts[-1][len(WHITEOUT) :])
                elif info.isdir():
                    self._directory(parts)
                elif info.issym():
                    target = info.linkname.encode("utf-8", "surrogateescape")
                    self._put(parts, Symlink(target))
                elif info.islnk():
                    linked = info.linkname.encode("utf-8", "surrogateescape").lstrip(b"/")
                    self._put(parts, self._linked(name, entry_path(self.label, linked)))
                elif info.isreg():
                    reader = cast("BinaryIO", archive.extractfile(info))
                    executable = bool(info.mode & 0o100)
                    self._put(parts, self.content.add_blob(reader, executable=executable))
        except DAMAGE as error:
            raise refuse(self.label, name, f"cannot be read: {error}") from error

    def _resolve(self, parts: Parts) -> Parts:
        """Where a directory's path leads, links followed inside the root."""
        todo, done, links = list(reversed(parts)), list[bytes](), 0
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                done = done[:-1]
                continue
            found = self._lookup((*done, part))
            if not isinstance(found, Symlink):
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise refuse(self.label, b"/".join(parts), "is a loop of links")
            if found.target.startswith(b"/"):
                done = []
            todo.extend(reversed(found.target.split(b"/")))
        return tuple(done)

    def _lookup(self, parts: Parts) -> _Node | File | Symlink | None:
        here: _Node | File | Symlink | None = self.root
        for part in parts:
            here = here.children.get(part) if isinstance(here, _Node) else None
        return here

    def _open(self, parts: Parts) -> _Node:
        """The directory at a resolved path, made where there is none, in place of what is none."""
        here = self.root
        for part in parts:
            child = here.children.get(part)
            if not isinstance(child, _Node):
                child = here.children[part] = _Node()
            here = child
        return here

    def _directory(self, parts: Parts) -> None:
        place = (*self._resolve(parts[:-1]), parts[-1])
        found = self._lookup(place)
        if isinstance(found, Symlink) and isinstance(self._lookup(self._resolve(place)), _Node):
            place = self._resolve(place)
        self._open(place)
        self.own.add(place)

    def _put(self, parts: Parts, entry: File | Symlink) -> None:
        parent = self._resolve(parts[:-1])
        self._open(parent).children[parts[-1]] = entry
        self.own.add((*parent, parts[-1]))

    def _linked(self, name: bytes, parts: Parts) -> File | Symlink:
        found = self._lookup((*self._resolve(parts[:-1]), parts[-1])) if parts else None
        if found is None or isinstance(found, _Node):
            raise refuse(self.label, name, "is a hard link to what is no file")
        return found

    def _remove(self, parent: Parts, name: bytes) -> None:
        node = self._lookup(parent)
        if isinstance(node, _Node) and (*parent, name) not in self.own:
            node.children.pop(name, None)

    def _clear(self, place: Parts) -> None:
        node = self._lookup(place)
        if isinstance(node, _Node):
            for name in list(node.children):
                self._remove(place, name)
