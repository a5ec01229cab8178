"""Writing a bundle: streamed, resumable, and the same bytes for the same content.

What is being written lies beside the file under `.NAME.partial` (a long name's digest in its
place), with a journal of the pieces that are finished; a second call for the same content takes up
after the last whole piece. The file gets its name when all of it is on the disk.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.places import check_replaceable
from reprobuild.core.bundle import format as layout
from reprobuild.core.bundle.format import Entry, Piece, Trailer
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.errors import ReprobuildError

LEVEL = 2
"""250–530 MB/s a core where level 3 makes 75–310; files up to a fifth larger."""
_ENDINGS = ("partial", "journal")
_LONGEST = 120
"""Bytes of a file name that endings are added to: the shortest NAME_MAX in use is 143."""
_ROW = struct.Struct(">I32s")


def compressor() -> str:
    """What makes the pieces' bytes: another version may make others of the same content."""
    import zstandard

    version = ".".join(map(str, zstandard.ZSTD_VERSION))
    return f"zstd {version}, level {LEVEL}"


def compress(data: bytes) -> bytes:
    """One frame with its content size in its head, made by one thread."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)


@dataclass(frozen=True, slots=True)
class Written:
    """A finished bundle."""

    digest: Digest
    size: int
    objects: int
    content: int
    resumed: int
    """Pieces that an earlier, interrupted call had written."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes into a bundle. `open` gives the verified bytes of an entry's object."""

    manifest: dict[str, Value]
    entries: tuple[Entry, ...]
    open: Callable[[Entry], BinaryIO]
    head: bytes
    boot: bytes


def write_bundle(
    path: Path,
    plan: Plan,
    sign: Callable[[Digest], list[Value]],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Written:
    """Writes the bundle; `sign` gives signatures for its digest.

    Raises E-WRITE, and whatever `plan.open` raises for damaged or missing objects.
    """
    try:
        return _write(path, plan, sign, progress)
    except OSError as error:
        raise ReprobuildError(
            "E-WRITE",
            f"cannot write {path}: {error.strerror or error}",
            hint="what is written so far is kept: the same call goes on from there",
            file=str(path),
        ) from error


def _write(
    path: Path,
    plan: Plan,
    sign: Callable[[Digest], list[Value]],
    progress: Callable[[int, int], None],
) -> Written:
    import fcntl

    check_replaceable(path)
    partial, journal_path = (path.with_name(f".{_stem(path.name)}.{end}") for end in _ENDINGS)
    objects = layout.pack_objects(plan.entries)
    content = sum(e.size for e in plan.entries)
    key = layout.index_digest(
        layout.encode_index(plan.manifest, (), objects)
        + Digest.of(plan.head).raw
        + compressor().encode()
    )
    fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "r+b") as file, journal_path.open("a+b") as journal:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ReprobuildError(
                "E-WRITE", f"another process is writing {path}", file=str(path)
            ) from error
        pieces = _resume(file, journal, key, plan.head)
        resumed = len(pieces)
        if not resumed:
            file.seek(0)
            file.truncate()
            file.write(plan.head)
            journal.truncate(0)
            journal.write(key.raw)
            journal.flush()
        start = resumed * layout.PIECE
        for raw, packed in _pieces(plan, start):
            piece = Piece(len(packed), Digest.of(packed))
            file.write(packed)
            file.flush()
            journal.write(_ROW.pack(piece.size, piece.digest.raw))
            journal.flush()
            pieces.append(piece)
            start += raw
            progress(start, content)
        index = layout.encode_index(plan.manifest, pieces, objects)
        digest = layout.index_digest(index)
        packed_index = compress(index)
        signatures = encode({"proofs": [], "signatures": sign(digest)})
        trailer = Trailer(
            head=len(plan.head),
            pieces=sum(p.size for p in pieces),
            index=len(packed_index),
            index_size=len(index),
            signatures=len(signatures),
            boot=len(plan.boot),
            digest=digest,
        )
        file.write(packed_index + signatures + plan.boot + trailer.encode())
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        partial.chmod(0o755)  # it can be run
        partial.replace(path)
    journal_path.unlink(missing_ok=True)
    _sync_directory(path.parent)
    return Written(digest, size, len(plan.entries), content, resumed)


def add_proof(path: Path, proof: Value) -> None:
    """Puts a proof into a finished bundle; its digest stays. Whole or not at all; E-WRITE."""
    from reprobuild.adapters.bundle.reader import BundleReader
    from reprobuild.adapters.git.files import Pending

    try:
        with BundleReader(path) as bundle, path.open("rb") as old, Pending(path) as new:
            attached = bundle.attached()
            proofs = attached["proofs"]
            assert isinstance(proofs, list)
            text = encode({**attached, "proofs": [*proofs, proof]})
            trailer = bundle.trailer
            start = trailer.head + trailer.pieces + trailer.index
            _copy(old, new.file, start)
            new.file.write(text)
            old.seek(start + trailer.signatures)
            _copy(old, new.file, trailer.boot)
            new.file.write(replace(trailer, signatures=len(text)).encode())
            new.commit()
    except OSError as error:
        raise ReprobuildError(
            "E-WRITE", f"cannot write {path}: {error.strerror}", file=str(path)
        ) from error


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0 and (data := source.read(min(size, 2**20))):
        target.write(data)
        size -= len(data)


def _stem(name: str) -> str:
    """The file's name, or what stands for one to which no ending could be added."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST else Digest.of(raw).hex[:16]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _resume(file: BinaryIO, journal: BinaryIO, key: Digest, head: bytes) -> list[Piece]:
    """The pieces that are whole in the file, which is left standing after the last of them."""
    journal.seek(0)
    if journal.read(32) != key.raw or file.read(len(head)) != head:
        return []
    good: list[Piece] = []
    while len(row := journal.read(_ROW.size)) == _ROW.size:
        size, raw = _ROW.unpack(row)
        if Digest.of(file.read(size)).raw != raw:
            break
        good.append(Piece(size, Digest(raw.hex())))
    # A last, shorter piece may have been followed by the index; both are made again at no cost.
    journal.seek(0)
    journal.truncate(32 + _ROW.size * len(good))
    journal.seek(0, os.SEEK_END)
    file.seek(len(head) + sum(p.size for p in good))
    file.truncate()
    return good


def _pieces(plan: Plan, start: int) -> Iterator[tuple[int, bytes]]:
    """(content size, packed bytes) of the pieces from content offset `start` on, in order."""
    workers = min(4, len(os.sched_getaffinity(0)))
    waiting: deque[tuple[int, Future[bytes]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for raw in _cut(plan, start):
                waiting.append((len(raw), pool.submit(compress, raw)))
                if len(waiting) > workers + 1:
                    size, packed = waiting.popleft()
                    yield size, packed.result()
            while waiting:
                size, packed = waiting.popleft()
                yield size, packed.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _cut(plan: Plan, start: int) -> Iterator[bytes]:
    parts: list[bytes] = []
    room = layout.PIECE
    for chunk in _content(plan, start):
        # `_content` never reads across a piece's end
        parts.append(chunk)
        room -= len(chunk)
        if not room:
            yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts, room = [], layout.PIECE
    if parts:
        yield b"".join(parts)


def _content(plan: Plan, start: int) -> Iterator[bytes]:
    """The objects' bytes from offset `start` on, no chunk across the end of a piece.

    Each object must have its size exactly.
    """
    position = 0
    for entry in plan.entries:
        end = position + entry.size
        if end <= start and entry.size:
            position = end
            continue
        with plan.open(entry) as source:
            while position < end:
                room = layout.PIECE - position % layout.PIECE
                chunk = source.read(min(end - position, room))
                if not chunk:
                    break
                skip = max(0, start - position)
                position += len(chunk)
                if skip < len(chunk):
                    yield chunk[skip:] if skip else chunk
            if position != end or source.read(1):
                raise ReprobuildError(
                    "E-STORE-DAMAGED", f"the {entry} has another size than {entry.size}"
                )
