"""The bundle format, version 0, as pure functions over bytes (docs/format-bundle.md).

    head        a shell script, and behind it the tool as a gzipped tar (may be empty)
    pieces      zstd frames: the objects' bytes, one after the other, cut every PIECE bytes
    index       one zstd frame: the manifest, the table of pieces, the table of objects
    signatures  a canonical JSON list
    boot        a zip archive with `__main__.py`, whose comment is
    trailer     TRAILER_SIZE bytes: where all of this lies, and the bundle's digest

The five parts and the trailer tile the file: every byte is covered by the bundle's digest, which
is that of the index, or by a signature over it. Where an object lies follows from the sizes of
those before it, so no two can overlap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reprobuild.core.digest import Digest, tagged
from reprobuild.core.encoding import Value, decode, encode
from reprobuild.errors import ReprobuildError

DOMAIN = "reprobuild/bundle/v0"
MAGIC = b"reprobuild-bdl-0"
PIECE = 4 * 2**20
"""Bytes of content in each piece but the last."""

MAX_INDEX = 512 * 2**20
"""Bytes of an index; about twelve million objects."""

MAX_SIGNATURES = 2**20
MAX_BOOT = 2**16
MAX_RATIO = 2000
"""How many times larger than the file its content may be, beyond RATIO_FLOOR."""

RATIO_FLOOR = 256 * 2**20

BLOB, EXECUTABLE, TREE, DRV, RECORD = (b"b", b"x", b"t", b"d", b"r")
ORDER = (BLOB, EXECUTABLE, TREE, DRV, RECORD)
"""The kinds; blobs of both modes are mixed, all others come in this order."""

NAMES = {
    BLOB: "blob",
    EXECUTABLE: "blob",
    TREE: "tree",
    DRV: "derivation",
    RECORD: "record",
}

_TRAILER = struct.Struct(">16sQQQQQQ32s")
TRAILER_SIZE = _TRAILER.size
_PIECE = struct.Struct(">I32s")
_OBJECT = struct.Struct(">c32sQ")
_LENGTHS = struct.Struct(">III")


def off(message: str, **facts: str | int) -> ReprobuildError:
    """The E-BUNDLE for a bundle that breaks the format."""
    error = ReprobuildError("E-BUNDLE", message)
    error.facts.update(facts)
    return error


@dataclass(frozen=True, slots=True)
class Trailer:
    """Sizes in bytes of the parts, in the order of the file, and the bundle's digest.

    `index_size` is the index's size unpacked.
    """

    head: int
    pieces: int
    index: int
    index_size: int
    signatures: int
    boot: int
    digest: Digest

    def encode(self) -> bytes:
        """The last bytes of the file."""
        return _TRAILER.pack(
            MAGIC,
            self.head,
            self.pieces,
            self.index,
            self.index_size,
            self.signatures,
            self.boot,
            self.digest.raw,
        )

    @classmethod
    def decode(cls, data: bytes, file_size: int) -> Trailer:
        """From the last bytes of a file; raises E-BUNDLE unless the parts tile it exactly."""
        if len(data) != TRAILER_SIZE or not data.startswith(MAGIC[:-1]):
            raise off("this is no bundle: it does not end as one does, or was cut short")
        magic, head, pieces, index, index_size, signatures, boot, digest = _TRAILER.unpack(data)
        if magic != MAGIC:
            raise ReprobuildError(
                "E-BUNDLE",
                f"the bundle has format {magic[-1:].decode('ascii', 'replace')!r}; "
                "this version knows format 0",
                hint="use the newer reprobuild that made it",
            )
        total = head + pieces + index + signatures + boot + TRAILER_SIZE
        if total != file_size:
            raise off(
                f"the bundle's parts have {total} bytes, the file has {file_size}",
                expected=total,
                got=file_size,
            )
        if index_size > MAX_INDEX or signatures > MAX_SIGNATURES or boot > MAX_BOOT:
            raise ReprobuildError(
                "E-BUNDLE-LIMIT",
                "the bundle says that its index, signatures or start-up part are larger than any "
                "bundle's can be",
            )
        return cls(head, pieces, index, index_size, signatures, boot, Digest.from_raw(digest))


@dataclass(frozen=True, slots=True)
class Entry:
    """One object: its kind, what names it, its size in bytes."""

    kind: bytes
    digest: Digest
    size: int

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} {self.digest}"


@dataclass(frozen=True, slots=True)
class Piece:
    """One zstd frame: its packed size in bytes and the digest of the packed bytes."""

    size: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Index:
    """A decoded index. The object table stays packed, so that a large one costs little memory."""

    manifest: dict[str, Value]
    pieces: tuple[Piece, ...]
    objects: bytes
    content: int
    """Bytes of all objects together."""

    def __len__(self) -> int:
        return len(self.objects) // _OBJECT.size

    def __iter__(self) -> Iterator[Entry]:
        for kind, raw, size in _OBJECT.iter_unpack(self.objects):
            yield Entry(kind, Digest(raw.hex()), size)

    def rows(self) -> Iterator[tuple[bytes, bytes, int]]:
        """(kind, raw digest, size) of each object."""
        return _OBJECT.iter_unpack(self.objects)


def pack_objects(entries: Iterable[Entry]) -> bytes:
    """The object table."""
    return b"".join(_OBJECT.pack(e.kind, e.digest.raw, e.size) for e in entries)


def encode_index(manifest: Value, pieces: Iterable[Piece], objects: bytes) -> bytes:
    """The index's bytes; `objects` as made by `pack_objects`."""
    text = encode(manifest)
    table = b"".join(_PIECE.pack(p.size, p.digest.raw) for p in pieces)
    lengths = _LENGTHS.pack(len(text), len(table), len(objects))
    return lengths + text + table + objects


def index_digest(data: bytes) -> Digest:
    """The bundle's digest: that of its index."""
    return tagged(DOMAIN, data)


def decode_index(data: bytes, pieces_size: int, file_size: int) -> Index:
    """The index whose bytes are `data`.

    Checks everything that can be checked without the content: the pieces fill their part, their
    number fits the objects' sizes, no object comes twice, kinds come in order, and the content is
    not absurdly larger than the file. Raises E-BUNDLE, E-BUNDLE-LIMIT.
    """
    if len(data) < _LENGTHS.size:
        raise off("the index is cut short")
    text, table, objects = _LENGTHS.unpack_from(data)
    if _LENGTHS.size + text + table + objects != len(data):
        raise off("the index's parts do not fill it")
    if table % _PIECE.size or objects % _OBJECT.size:
        raise off("a table of the index has a broken row")
    start = _LENGTHS.size
    try:
        manifest = decode(data[start : start + text])
    except ReprobuildError as error:
        raise off(f"the manifest is off: {error.message}") from error
    if not isinstance(manifest, dict):
        raise off("the manifest is no object")
    start += text
    pieces = tuple(
        Piece(size, Digest(raw.hex()))
        for size, raw in _PIECE.iter_unpack(data[start : start + table])
    )
    index = Index(manifest, pieces, data[start + table :], 0)
    content = _check_objects(index)
    if sum(p.size for p in pieces) != pieces_size:
        raise off("the pieces do not fill their part of the file")
    if len(pieces) != -(-content // PIECE):
        raise off(f"{len(pieces)} pieces cannot hold {content} bytes of objects")
    if content > RATIO_FLOOR and content > MAX_RATIO * file_size:
        raise ReprobuildError(
            "E-BUNDLE-LIMIT",
            f"the bundle of {file_size} bytes says that it holds {content} bytes",
            expected=MAX_RATIO * file_size,
            got=content,
        )
    return Index(manifest, pieces, index.objects, content)


def _check_objects(index: Index) -> int:
    content, rank = 0, 0
    ranks = {kind: max(1, place) for place, kind in enumerate(ORDER)}
    seen: set[bytes] = set()
    for kind, raw, size in index.rows():
        here = ranks.get(kind)
        if here is None:
            raise off(f"the index has an object of unknown kind {kind!r}")
        if here < rank:
            raise off(f"the {NAMES[kind]} blake3:{raw.hex()} stands in the wrong place")
        rank = here
        name = raw + bytes([here])
        if name in seen:
            raise off(f"the {NAMES[kind]} blake3:{raw.hex()} is in the bundle twice")
        seen.add(name)
        content += size
        if content > 2**62:
            raise ReprobuildError("E-BUNDLE-LIMIT", "the objects' sizes add up to nonsense")
    return content


def piece_content(content: int, number: int) -> int:
    """Bytes of content in piece `number` (from 0) of a bundle with `content` bytes of objects."""
    return min(PIECE, content - number * PIECE)
