"""Zip files and wheels into a tree, by the standard library's reader."""

from __future__ import annotations

import io
import lzma
import stat
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from reprobuild.adapters.builders.archive import Intake, entry_path, refuse

UTF8_FLAG = 0x800
ENCRYPTED_FLAG = 0x1
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    UnicodeError,
    ValueError,
    OverflowError,
)
"""What the library raises for files that are off."""

MAX_LINK = 4096


def raw_name(info: zipfile.ZipInfo) -> bytes:
    """An entry's name as the bytes that are in the archive."""
    encoding = "utf-8" if info.flag_bits & UTF8_FLAG else "cp437"
    return info.orig_filename.encode(encoding)


def check(archive: zipfile.ZipFile, intake: Intake) -> None:
    """Raises for names, kinds and declared sizes that are off, before anything is unpacked."""
    for info in archive.infolist():
        intake.budget.take_entry()
        intake.budget.take_bytes(info.file_size)
        name = raw_name(info)
        if b"\0" in name:
            raise refuse(intake.archive, name, "has a NUL in its name")
        entry_path(intake.archive, name)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            raise refuse(intake.archive, name, "is a device, socket or pipe")
        if info.flag_bits & ENCRYPTED_FLAG:
            raise refuse(intake.archive, name, "is encrypted")


def read_zip(path: Path, intake: Intake) -> None:
    """Takes every entry of the zip file at `path`; raises E-ARCHIVE… for what is off."""
    name = b""
    try:
        with zipfile.ZipFile(path) as archive:
            check(archive, intake)
            for info in archive.infolist():
                name = raw_name(info)
                _take(archive, info, name, intake)
    except DAMAGE as error:
        raise refuse(intake.archive, name, f"cannot be read: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise refuse(intake.archive, name, f"cannot be read: {error}") from error  # from bz2


def _take(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: bytes, intake: Intake) -> None:
    mode = info.external_attr >> 16
    if info.is_dir() or stat.S_ISDIR(mode):
        if info.file_size:
            raise refuse(intake.archive, name, "is a directory with content")
        intake.directory(name)
        return
    if not intake.wants(name):
        return
    if stat.S_ISLNK(mode):
        if info.file_size > MAX_LINK:
            raise refuse(intake.archive, name, "is a link with a target that is not allowed")
        intake.symlink(name, archive.read(info))
        return
    with archive.open(info) as source:
        reader = cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, source), 2**17))
        intake.file(name, reader, info.file_size, bool(mode & stat.S_IXUSR))
