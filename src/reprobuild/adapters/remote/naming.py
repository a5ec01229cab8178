"""From our digests to the wire's.

Where the wire's are BLAKE3, a blob's name is the one that it has here. Where they are SHA-256, both
names come from the same bytes, read here; what a server says is never taken for it, and the memo
only saves reading again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Protocol

from reprobuild.core.digest import Digest, tagged
from reprobuild.core.remote.function import BLAKE3, Function
from reprobuild.core.remote.root import Node, entries
from reprobuild.core.remote.wire import Blob, WireFile, WireLink, directory
from reprobuild.core.tree import Directory, File, Symlink, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

_CHUNK = 2**20
_BACK = "reprobuild/remote-memo/v0"
_FLUSH = 512


class Memo(Protocol):
    """Remembers small values by digest. May forget; never lies."""

    def get(self, blob: Digest) -> bytes | None:
        """What was put."""
        ...

    def put(self, scans: Mapping[Digest, bytes]) -> None:
        """Remembers."""
        ...


Source = bytes | Digest
"""Where a wire blob's bytes are: at hand, or in the store under a digest of ours."""


class Namer:
    """Names blobs, trees and roots by one digest function. Safe for many threads."""

    def __init__(self, content: ContentStore, memo: Memo, function: Function) -> None:
        self.content, self.function = content, function
        self.ours = function == BLAKE3
        """Whether the wire's name of a blob is the store's."""
        self._memo = memo
        self._lock = threading.Lock()
        self._blobs: dict[Digest, Blob] = {}
        self._directories: dict[Digest, tuple[Blob, bytes]] = {}
        self._fresh: dict[Digest, bytes] = {}

    # -- blobs -------------------------------------------------------------------------------

    def blob(self, digest: Digest, size: int = -1) -> Blob:
        """The wire's name of a stored blob; what has to be read for it is read once, then
        remembered. `size` in bytes where it is known."""
        if self.ours and size >= 0:
            return Blob(digest.hex, size)
        found = self._blobs.get(digest)
        if found is None:
            packed = None if self.ours else self._memo.get(digest)
            if packed is not None and len(packed) == 40:
                found = Blob.unpack(packed)
            else:
                found = self._read(digest)
                if not self.ours:
                    self._remember(digest, found.pack())
            self._blobs[digest] = found
        return found

    def _read(self, digest: Digest) -> Blob:
        hasher, size = None if self.ours else self.function.hasher(), 0
        with self.content.open_blob(digest) as file:
            while data := file.read(_CHUNK):
                if hasher is not None:
                    hasher.update(data)
                size += len(data)
        return Blob(digest.hex if hasher is None else hasher.hexdigest(), size)

    def learn(self, digest: Digest, blob: Blob) -> None:
        """Both names of bytes that went through our hands."""
        if self.ours:
            return
        self._blobs[digest] = blob
        self._remember(digest, blob.pack())
        self._remember(_back(blob), digest.raw)

    def known(self, blob: Blob) -> Digest | None:
        """Our digest of a wire blob whose bytes may be here."""
        if self.ours:
            return Digest(blob.hash)
        packed = self._memo.get(_back(blob))
        return Digest.from_raw(packed) if packed is not None and len(packed) == 32 else None

    def _remember(self, key: Digest, value: bytes) -> None:
        with self._lock:
            self._fresh[key] = value
            if len(self._fresh) < _FLUSH:
                return
        self.flush()

    def flush(self) -> None:
        """Hands what is new to the memo."""
        with self._lock:
            fresh, self._fresh = self._fresh, {}
        self._memo.put(fresh)

    # -- directories -------------------------------------------------------------------------

    def directory(self, digest: Digest, where: str = "") -> tuple[Blob, bytes]:
        """The Directory message of a stored tree, with its name. Raises E-REMOTE-NAME."""
        found = self._directories.get(digest)
        if found is None:
            found = self._message(dict(self.content.tree(digest)), where)[:2]
            self._directories[digest] = found
        return found

    def _message(
        self, items: Mapping[bytes, Node | Directory | File | Symlink | bytes], where: str
    ) -> tuple[Blob, bytes, dict[Blob, Source], list[Digest]]:
        """(name, message, blobs that are no store trees', store trees) of one directory."""
        files: list[WireFile] = []
        directories: list[tuple[str, Blob]] = []
        links: list[WireLink] = []
        offers: dict[Blob, Source] = {}
        trees: list[Digest] = []
        for raw, entry in items.items():
            name = utf8(raw, where)
            place = f"{where}/{name}"
            if isinstance(entry, Symlink):
                links.append(WireLink(name, utf8(entry.target, place, "the target of a link")))
            elif isinstance(entry, File):
                blob = self.blob(entry.digest, entry.size)
                files.append(WireFile(name, blob, entry.executable))
                offers[blob] = entry.digest
            elif isinstance(entry, Directory):
                directories.append((name, self.directory(entry.digest, place)[0]))
                trees.append(entry.digest)
            elif isinstance(entry, Node):
                blob, message, below, more = self._node(entry, place)
                offers.update(below)
                offers[blob] = message
                trees += more
                directories.append((name, blob))
            else:
                blob = self.function.blob(entry)
                offers[blob] = entry
                files.append(WireFile(name, blob, name == LAUNCHER))
        message = directory(files, directories, links)
        return self.function.blob(message), message, offers, trees

    def _node(self, node: Node, where: str) -> tuple[Blob, bytes, dict[Blob, Source], list[Digest]]:
        return self._message(entries(node, self.tree), where)

    def tree(self, digest: Digest) -> Tree:
        """A directory node of the store."""
        return self.content.tree(digest)

    def root(self, root: Node) -> tuple[Blob, dict[Blob, Source], list[Digest]]:
        """The wire's name of an input root, what it is made of beside trees of the store, and
        those trees."""
        blob, message, offers, trees = self._node(root, "")
        offers[blob] = message
        return blob, offers, trees

    def below(self, trees: list[Digest], skip: set[Digest]) -> Iterator[tuple[Blob, Source]]:
        """All blobs and Directory messages of trees, each tree once; `skip` grows by them."""
        stack = list(trees)
        while stack:
            digest = stack.pop()
            if digest in skip:
                continue
            skip.add(digest)
            yield self.directory(digest)
            for _, entry in self.content.tree(digest):
                if isinstance(entry, Directory):
                    stack.append(entry.digest)
                elif isinstance(entry, File):
                    yield self.blob(entry.digest, entry.size), entry.digest


class Namers:
    """A namer for each digest function, all over one store."""

    def __init__(self, content: ContentStore, memo: Memo) -> None:
        self.content, self._memo = content, memo
        self._lock = threading.Lock()
        self._made: dict[str, Namer] = {}

    def of(self, function: Function) -> Namer:
        """The namer of a function, the same each time."""
        with self._lock:
            made = self._made.get(function.name)
            if made is None:
                made = self._made[function.name] = Namer(self.content, self._memo, function)
            return made


LAUNCHER = ".launch"
"""The file of an input root that starts the build (data/launch.c)."""


def utf8(raw: bytes, where: str, what: str = "the name of a file") -> str:
    """Text for the wire; raises E-REMOTE-NAME."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        shown = raw.decode(errors="backslashreplace")
        raise ReprobuildError(
            "E-REMOTE-NAME",
            f"{what} at {where or '/'} is not UTF-8: {shown}; the protocol has no way to write it",
            path=where or "/",
            name=shown,
        ) from None


def _back(blob: Blob) -> Digest:
    return tagged(_BACK, blob.pack())
