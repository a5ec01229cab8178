"""Tar streams (plain, gzip, xz, bzip2, zstd) into a tree, by the standard library's reader."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

from reprobuild.adapters.builders.archive import Budget, Intake, entry_path, refuse
from reprobuild.errors import ReprobuildError

DAMAGE = (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, OverflowError)
MAX_HEADER = 2**20
"""The most that the extended headers of one entry may hold, in bytes."""

_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _StrictInfo(tarfile.TarInfo):
    """The library takes a damaged header in the middle for the end of the archive; this does not,
    nor does it load an extended header of any size that is declared."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _StrictInfo:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"damaged or cut short: {error}") from error

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str | None, errors: str) -> _StrictInfo:
        info = super().frombuf(buf, encoding or "utf-8", errors)
        if info.size < 0:
            raise tarfile.ReadError("an entry has a negative size")
        if info.type in _EXTENDED and info.size > MAX_HEADER:
            raise tarfile.ReadError(f"an extended header of {info.size} bytes")
        return info


class _Counted:
    """A stream whose reads are charged to the budget, so that no compressor outruns it."""

    def __init__(self, source: BinaryIO, budget: Budget) -> None:
        self._source = source
        self._budget = budget

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._budget.take_bytes(len(data))
        return data


def decompressed(source: BinaryIO, magic: bytes) -> BinaryIO:
    """The stream inside `source`, whose first bytes are `magic` (but still unread)."""
    if magic.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=source))
    if magic.startswith(b"\xfd7zXZ\0"):
        return cast(BinaryIO, lzma.LZMAFile(source, format=lzma.FORMAT_XZ))
    if magic.startswith(b"BZh"):
        return cast(BinaryIO, bz2.BZ2File(source))
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        decompressor = zstandard.ZstdDecompressor(max_window_size=2**27)
        return cast(BinaryIO, decompressor.stream_reader(source, read_across_frames=True))
    return source


def entries(stream: BinaryIO) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Each entry of an unpacked tar stream, strictly; names are text with surrogate escapes.

    Raises what is in DAMAGE. An entry's content is to be read before the next entry is asked for.
    """
    with tarfile.open(
        fileobj=stream,
        mode="r|",
        tarinfo=_StrictInfo,
        encoding="utf-8",
        errors="surrogateescape",
        errorlevel=2,
    ) as archive:
        while (info := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # it would keep them all
            yield archive, info


def read_tar(open_stream: Callable[[], BinaryIO], magic: bytes, intake: Intake) -> None:
    """Takes every entry of a tar stream; raises E-ARCHIVE… for what is off.

    `open_stream` gives the packed stream from its beginning; it is asked a second time only when a
    hard link needs the content of an entry that was left out. `magic` are its first bytes.
    """
    _pass(open_stream, magic, intake)
    if not intake.missing:
        return
    budget = Budget(intake.archive, intake.budget.packed, intake.budget.limit)
    again = Intake(
        intake.content, intake.assembly, intake.archive, budget, intake.select, intake.strip
    )
    again.only = set(intake.missing)
    _pass(open_stream, magic, again)
    intake.known(again)
    intake.missing.clear()
    intake.budget = Budget(intake.archive, intake.budget.packed, intake.budget.limit)
    _pass(open_stream, magic, intake)
    for target in sorted(intake.missing):
        raise refuse(intake.archive, target, "is linked to, but is no file before the link")


def _pass(open_stream: Callable[[], BinaryIO], magic: bytes, intake: Intake) -> None:
    name = b""
    with open_stream() as packed:
        try:
            stream = _Counted(decompressed(packed, magic), intake.budget)
            for archive, info in entries(cast(BinaryIO, stream)):
                name = info.name.encode("utf-8", "surrogateescape")
                _take(archive, info, name, intake)
            name = b""
            while stream.read(2**20):
                pass  # what follows the end mark still has to decompress and check
            while packed.read(2**20):
                pass  # the store's reader verifies at its end
        except (ReprobuildError, KeyboardInterrupt):
            raise
        except DAMAGE as error:
            raise refuse(intake.archive, name, f"cannot be read: {error}") from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise refuse(intake.archive, name, f"cannot be read: {error}") from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "zstandard":
                raise
            raise refuse(intake.archive, name, f"cannot be read: {error}") from error


def _take(archive: tarfile.TarFile, info: tarfile.TarInfo, name: bytes, intake: Intake) -> None:
    intake.budget.take_entry()
    entry_path(intake.archive, name)
    if info.isdir():
        intake.directory(name)
    elif info.issym():
        intake.symlink(name, info.linkname.encode("utf-8", "surrogateescape"))
    elif info.islnk():
        intake.hardlink(name, info.linkname.encode("utf-8", "surrogateescape"))
    elif info.isreg():
        if info.issparse():
            intake.budget.take_bytes(info.size)
        source = archive.extractfile(info) if intake.wants(name) else None
        if source is not None:
            intake.file(name, cast(BinaryIO, source), info.size, bool(info.mode & 0o100))
    else:
        raise refuse(intake.archive, name, "is a device, socket or pipe")
