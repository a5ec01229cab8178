"""Tar streams (plain, gzip, xz, bzip2, zstd) into a tree, by the standard library's reader."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

from reprobuild.adapters.builders import decompress
from reprobuild.adapters.builders.archive import Budget, Intake, entry_path, refuse

DAMAGE: tuple[type[Exception], ...] = (
    *decompress.DAMAGE,
    tarfile.TarError,
    ValueError,
    OverflowError,
)
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


def entries(stream: BinaryIO) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Each entry of an unpacked tar stream, strictly; names are text with surrogate escapes.

    Raises what is in DAMAGE. An entry's content is to be read before the next entry is asked for.
    """
    with tarfile.open(
        fileobj=stream,
        mode="r|",
        tarinfo=_StrictInfo,
        bufsize=2**18,
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


def _pass(open_stream: Callable[[], BinaryIO], magic: bytes, intake: Intake) -> None:
    name = b""
    with open_stream() as packed:
        try:
            stream = _Counted(decompress.decompressed(packed, magic), intake.budget)
            for archive, info in entries(cast(BinaryIO, stream)):
                name = info.name.encode("utf-8", "surrogateescape")
                _take(archive, info, name, intake)
            name = b""
            while stream.read(2**20):
                pass  # what follows the end mark still has to decompress and check
            while packed.read(2**20):
                pass  # the store's reader verifies at its end
        except DAMAGE as error:
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
        if not intake.wants(name):
            intake.skip(name)
            return
        source = cast(BinaryIO, archive.extractfile(info))
        intake.file(name, source, info.size, bool(info.mode & 0o100))
    else:
        raise refuse(intake.archive, name, "is a device, socket or pipe")
