"""What lies underneath a layer: enough of it to place files where they really go."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from reprobuild.core.digest import Digest
from reprobuild.core.imagetar import Attributes
from reprobuild.core.tree import Directory, Entry, File, Symlink
from reprobuild.core.treebuilder import split_path
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

if TYPE_CHECKING:
    from reprobuild.adapters.builders.archive import Budget

MAX_LINKS = 40
WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Found:
    """An entry underneath: `entry` (a directory's digest means nothing; a file's is None where
    only an archive is known), and what the layer beneath says about it, if it says anything."""

    kind: str
    target: bytes = b""
    file: File | None = None
    attributes: Attributes | None = None


class Beneath(Protocol):
    """One thing that lies underneath."""

    def lookup(self, parts: tuple[bytes, ...]) -> Found | None:
        """What stands there, links not followed."""
        ...


class TreeBeneath:
    """A component's placed tree."""

    def __init__(self, content: ContentStore, tree: Digest) -> None:
        self._content = content
        self._tree = tree

    def lookup(self, parts: tuple[bytes, ...]) -> Found | None:
        """See `Beneath`."""
        entry: Entry | None = Directory(self._tree)
        for part in parts:
            if not isinstance(entry, Directory):
                return None
            entry = self._content.tree(entry.digest).get(part)
        if isinstance(entry, Directory):
            return Found("directory")
        if isinstance(entry, Symlink):
            return Found("link", target=entry.target)
        return Found("file", file=entry) if isinstance(entry, File) else None


class ImageBeneath:
    """A base image, as its layers leave it (whiteouts applied)."""

    def __init__(self, content: ContentStore, layout: Digest, architecture: str) -> None:
        from reprobuild.adapters.builders.archive import DEFAULT_LIMIT, Budget
        from reprobuild.adapters.oci.storelayout import load_image

        self._entries: dict[tuple[bytes, ...], Found] = {}
        for layer, file in load_image(content, layout, architecture).blobs:
            label = f"layer {layer.digest} of the base image"
            with content.open_blob(file.digest) as source:
                magic = source.read(8)
            with content.open_blob(file.digest) as source:
                self._apply(label, source, magic, Budget(label, file.size, DEFAULT_LIMIT))

    def lookup(self, parts: tuple[bytes, ...]) -> Found | None:
        """See `Beneath`."""
        return self._entries.get(parts) if parts else Found("directory")

    def _apply(self, label: str, source: BinaryIO, magic: bytes, budget: Budget) -> None:
        from reprobuild.adapters.builders.archive import entry_path, refuse
        from reprobuild.adapters.builders.decompress import decompressed
        from reprobuild.adapters.builders.tarread import DAMAGE, entries

        fresh: dict[tuple[bytes, ...], Found] = {}
        try:
            for _, info in entries(decompressed(source, magic)):
                budget.take_entry()
                budget.take_bytes(info.size)
                name = info.name.encode("utf-8", "surrogateescape").lstrip(b"/")
                parts = entry_path(label, name)
                if not parts:
                    continue
                if parts[-1] == OPAQUE:
                    self._remove_below(parts[:-1])
                elif parts[-1].startswith(WHITEOUT):
                    self._remove((*parts[:-1], parts[-1][len(WHITEOUT) :]))
                else:
                    attributes = Attributes(
                        info.mode & 0o7777, info.uid, info.gid, max(0, int(info.mtime))
                    )
                    if info.isdir():
                        fresh[parts] = Found("directory", attributes=attributes)
                    elif info.issym():
                        target = info.linkname.encode("utf-8", "surrogateescape")
                        fresh[parts] = Found("link", target=target, attributes=attributes)
                    else:
                        fresh[parts] = Found("file", attributes=attributes)
        except DAMAGE as error:
            raise refuse(label, b"", f"cannot be read: {error}") from error
        for parts, found in fresh.items():
            have = self._entries.get(parts)
            if have is not None and have.kind == "directory" != found.kind:
                self._remove_below(parts)
            self._entries[parts] = found
            for depth in range(1, len(parts)):
                self._entries.setdefault(parts[:depth], Found("directory"))

    def _remove(self, parts: tuple[bytes, ...]) -> None:
        self._entries.pop(parts, None)
        self._remove_below(parts)

    def _remove_below(self, parts: tuple[bytes, ...]) -> None:
        depth = len(parts)
        for key in [k for k in self._entries if len(k) > depth and k[:depth] == parts]:
            del self._entries[key]


_images: dict[tuple[Digest, str], ImageBeneath] = {}
_images_lock = threading.Lock()


def image_beneath(content: ContentStore, layout: Digest, architecture: str) -> ImageBeneath:
    """The base image in a layout, read once for all the layers that lie over it.

    Reading it means decompressing every layer, which may be many gigabytes; two bases are kept.
    """
    key = (layout, architecture)
    with _images_lock:
        found = _images.pop(key, None) or ImageBeneath(content, layout, architecture)
        _images[key] = found
        while len(_images) > 2:
            del _images[next(iter(_images))]
        return found


class Stack:
    """Several things beneath, the topmost last; what is `removed` is there no more."""

    def __init__(self, beneath: Sequence[Beneath]) -> None:
        self._beneath = tuple(reversed(beneath))
        self._removed: set[tuple[bytes, ...]] = set()

    def remove(self, path: bytes) -> tuple[bytes, ...]:
        """Takes away what stands at `path`, links on the way followed; where it really stood.

        Raises E-PARAMS when nothing does.
        """
        parts = split_path(path)
        place = (*self.resolve(b"/".join(parts[:-1])), *parts[-1:])
        if not place or self.lookup(place) is None:
            raise ReprobuildError(
                "E-PARAMS", f"there is nothing to remove at /{path.decode('utf-8', 'replace')}"
            )
        self._removed.add(place)
        return place

    def lookup(self, parts: tuple[bytes, ...]) -> Found | None:
        """The topmost entry there; a directory's attributes are the topmost that are stated."""
        if self._removed and any(parts[:n] in self._removed for n in range(1, len(parts) + 1)):
            return None
        first: Found | None = None
        for one in self._beneath:
            found = one.lookup(parts)
            if found is None:
                continue
            if found.kind != "directory" or found.attributes is not None:
                return found if first is None or found.kind == "directory" else first
            first = first or found
        return first

    def resolve(self, path: bytes) -> tuple[bytes, ...]:
        """Where `path` really lies, every link on the way followed inside the image."""
        todo = list(reversed(split_path(path)))
        done: list[bytes] = []
        links = 0
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                if done:
                    done.pop()
                continue
            found = self.lookup((*done, part))
            if found is None or found.kind != "link":
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise ReprobuildError("E-IMAGE", f"links of the base loop at {path!r}")
            if found.target.startswith(b"/"):
                done = []
            todo.extend(reversed(found.target.split(b"/")))
        return tuple(done)
