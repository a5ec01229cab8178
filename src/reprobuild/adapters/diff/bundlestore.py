"""A bundle read where it lies, as a store is: only the pieces that are asked for are unpacked."""

from __future__ import annotations

import io
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.core.bundle import format as layout
from reprobuild.core.bundle.format import BLOB, DRV, EXECUTABLE, RECORD, TREE
from reprobuild.core.bundle.manifest import Manifest, parse_manifest
from reprobuild.core.derivation import DERIVATION_DOMAIN, FIXED_DOMAIN
from reprobuild.core.digest import Digest, Hasher, blob_hasher, tagged
from reprobuild.core.encoding import Value
from reprobuild.core.record import RECORD_DOMAIN, Record
from reprobuild.core.tree import DOMAIN, Directory, File, Tree, decode
from reprobuild.errors import ReprobuildError
from reprobuild.ports import CatalogReader, ContentReader

HELD_PIECES = 6
"""Unpacked pieces (4 MiB each) that are kept at hand."""

MAX_NODE = 256 * 2**20
"""Bytes of a directory node or document; larger ones are refused unread."""

_ROW = 41  # kind, digest, size: a row of the object table (docs/format-bundle.md)


class Behind(ContentReader, CatalogReader, Protocol):
    """The store that a delta builds on, and that knows more about the same recipes."""

    def node(self, digest: Digest) -> bytes:
        """The verified bytes of a directory node; raises E-STORE-MISSING."""
        ...

    def has_blob(self, file: File) -> bool:
        """Whether a file's content is here."""
        ...


class BundleStore:
    """Content and catalog of a bundle; what it has not is looked for in the store `behind`.

    Everything is checked against the digest that names it when it is read. Raises E-BUNDLE for
    what is off, E-BUNDLE-LIMIT for what is absurdly large. For one thread.
    """

    def __init__(self, path: Path, behind: Behind | None = None) -> None:
        """Opens the bundle; raises E-BUNDLE, E-BUNDLE-LIMIT, E-USAGE."""
        self._reader = BundleReader(path)
        self._behind = behind
        self._manifest = parse_manifest(self._reader.manifest)
        self._starts = array("Q")
        self._rows: dict[bytes, int] = {}
        position = 0
        for number, (kind, raw, size) in enumerate(self._reader.index.rows()):
            self._starts.append(position)
            position += size
            if kind not in (BLOB, EXECUTABLE):
                self._rows[kind + raw] = number
        self._starts.append(position)
        self._pieces: OrderedDict[int, bytes] = OrderedDict()
        self._whole: set[Digest] = set()
        self._actions: dict[str, list[str]] = {}
        for name in self._manifest.keep.records:
            action, _, record = name.partition("/")
            self._actions.setdefault(action, []).append(record)

    @property
    def manifest(self) -> Manifest:
        """What the bundle says of itself."""
        return self._manifest

    @property
    def digest(self) -> Digest:
        """What names the bundle."""
        return self._reader.digest

    def signatures(self) -> Value:
        """The list of signatures, unverified; raises E-BUNDLE."""
        return self._reader.signatures()

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()

    # -- objects in the file ---------------------------------------------------------------------

    def _piece(self, number: int) -> bytes:
        found = self._pieces.pop(number, None)
        if found is None:
            found = self._reader.piece(number)
        self._pieces[number] = found
        if len(self._pieces) > HELD_PIECES:
            self._pieces.popitem(last=False)
        return found

    def part(self, start: int, size: int) -> bytes:
        """At most `size` bytes of content from `start`, out of one piece."""
        number, offset = divmod(start, layout.PIECE)
        return self._piece(number)[offset : offset + size]

    def _small(self, kind: bytes, digest: Digest) -> bytes | None:
        """A node or document of the file; None where the bundle has none of that name."""
        row = self._rows.get(kind + digest.raw)
        if row is None:
            return None
        position, end = self._starts[row], self._starts[row + 1]
        if end - position > MAX_NODE:
            raise ReprobuildError(
                "E-BUNDLE-LIMIT",
                f"the {layout.NAMES[kind]} {digest} says that it has {end - position} bytes",
            )
        parts = []
        while position < end:
            parts.append(self.part(position, end - position))
            position += len(parts[-1])
        return b"".join(parts)

    def _blob_row(self, digest: Digest) -> int | None:
        table, raw, at = self._reader.index.objects, digest.raw, -1
        while (at := table.find(raw, at + 1)) >= 0:
            row, place = divmod(at, _ROW)
            if place == 1 and table[at - 1 : at] in (BLOB, EXECUTABLE):
                return row
        return None

    # -- content ---------------------------------------------------------------------------------

    def node(self, digest: Digest) -> bytes:
        """The verified bytes of a directory node; raises E-BUNDLE-INCOMPLETE."""
        data = self._small(TREE, digest)
        if data is not None:
            if tagged(DOMAIN, data) != digest:
                raise layout.off(f"the tree {digest} has another content")
            return data
        if self._behind is not None and self._behind.contains(digest):
            return self._behind.node(digest)
        raise _lacks("tree", digest)

    def tree(self, digest: Digest) -> Tree:
        """The verified directory node; raises E-BUNDLE-INCOMPLETE."""
        return decode(self.node(digest))

    def contains(self, tree: Digest) -> bool:
        """Whether the tree is in the bundle or the store behind it.

        A whole bundle is taken at its word; of a delta, everything below is looked for.
        """
        if self._behind is not None and self._behind.contains(tree):
            return True
        if TREE + tree.raw not in self._rows:
            return False
        requires = self._manifest.requires
        return not (requires.closures or requires.trees) or self._complete(tree)

    def _complete(self, tree: Digest) -> bool:
        stack, seen = [tree], set[Digest]()
        while stack:
            digest = stack.pop()
            if digest in seen or digest in self._whole:
                continue
            seen.add(digest)
            if TREE + digest.raw not in self._rows:
                if self._behind is None or not self._behind.contains(digest):
                    return False
                continue
            for _, entry in self.tree(digest):
                if isinstance(entry, Directory):
                    stack.append(entry.digest)
                elif isinstance(entry, File) and not self.has_blob(entry):
                    return False
        self._whole |= seen
        return True

    def has_blob(self, file: File) -> bool:
        """Whether a file's content is in the bundle or the store behind it."""
        if self._blob_row(file.digest) is not None:
            return True
        return self._behind is not None and self._behind.has_blob(file)

    def open_blob(self, digest: Digest) -> BinaryIO:
        """A reader that raises E-BUNDLE at the end when the content is not `digest`."""
        row = self._blob_row(digest)
        if row is not None:
            return cast(BinaryIO, _Blob(self, digest, self._starts[row], self._starts[row + 1]))
        if self._behind is not None:
            return self._behind.open_blob(digest)
        raise _lacks("blob", digest)

    # -- catalog ---------------------------------------------------------------------------------

    def derivation(self, drv: Digest) -> bytes | None:
        """A derivation document, verified."""
        data = self._small(DRV, drv)
        if data is None:
            return self._behind.derivation(drv) if self._behind is not None else None
        domain = FIXED_DOMAIN if data.startswith(b'{"fixed":') else DERIVATION_DOMAIN
        if tagged(domain, data) != drv:
            raise layout.off(f"the derivation {drv} has another content")
        return data

    def records(self, action: Digest) -> Sequence[Record]:
        """The records of an action, the bundle's and the store's."""
        own = [self._record(action.hex, name) for name in self._actions.get(action.hex, ())]
        others = self._behind.records(action) if self._behind is not None else ()
        found = {record.digest: record for record in (*own, *others) if record is not None}
        return [found[digest] for digest in sorted(found)]

    def realized(self, drv: Digest) -> Record | None:
        """The record that the bundle chose for a derivation, else the store's."""
        name = self._manifest.chosen.get(drv)
        if name is not None:
            action, _, record = name.partition("/")
            found = self._record(action, record)
            if found is not None:
                return found
        return self._behind.realized(drv) if self._behind is not None else None

    def disputed(self) -> Mapping[Digest, Digest]:
        """The disputes of the store behind; a bundle's own records are asked by their action."""
        return self._behind.disputed() if self._behind is not None else {}

    def _record(self, action: str, name: str) -> Record | None:
        data = self._small(RECORD, Digest(name))
        if data is None:
            return None
        if tagged(RECORD_DOMAIN, data).hex != name:
            raise layout.off(f"the record {name} has another content")
        try:
            record = Record.decode(data)
        except ReprobuildError as error:
            raise layout.off(f"the record {name} is off: {error.message}") from error
        if record.action.hex != action:
            raise layout.off(f"the record {name} is of another action than the bundle says")
        return record

    def expected(self) -> Mapping[str, Mapping[str, str]]:
        """What each recipe came out as where the bundle was made: trees (hex) by output."""
        return {
            drv.hex: {name: tree.hex for name, tree in row.outputs.items()}
            for drv, row in self._manifest.expected.items()
        }


def _lacks(what: str, digest: Digest) -> ReprobuildError:
    return ReprobuildError(
        "E-BUNDLE-INCOMPLETE", f"the {what} {digest} is not in the bundle", object=digest.hex
    )


class _Blob(io.RawIOBase):
    """The bytes of one blob, piece by piece, hashed on the way."""

    def __init__(self, store: BundleStore, digest: Digest, start: int, end: int) -> None:
        super().__init__()
        self._store, self._digest, self._at, self._end = store, digest, start, end
        self._hasher: Hasher | None = blob_hasher()

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, all that are left for -1; raises E-BUNDLE at the end."""
        wanted = self._end - self._at if size is None or size < 0 else size
        parts: list[bytes] = []
        while wanted > 0 and self._at < self._end:
            data = self._store.part(self._at, min(wanted, self._end - self._at))
            parts.append(data)
            self._at += len(data)
            wanted -= len(data)
            if self._hasher is not None:
                self._hasher.update(data)
        if self._at == self._end and self._hasher is not None:
            found, self._hasher = self._hasher.hexdigest(), None
            if found != self._digest.hex:
                raise layout.off(f"the blob {self._digest} has another content")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fills `buffer`."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
