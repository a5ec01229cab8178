"""Reading one .deb: an ar archive of `debian-binary`, `control.tar.*` and `data.tar.*` (deb(5)).

The ar part is read here rather than by python-debian: its reader follows a negative member size
back to where it came from, for ever.
"""

from __future__ import annotations

import io
import tarfile
from typing import BinaryIO, cast

from reprobuild.adapters.builders.archive import refuse
from reprobuild.adapters.builders.decompress import decompressed
from reprobuild.adapters.builders.tarread import DAMAGE

AR_MAGIC = b"!<arch>\n"
HEADER = 60
MAX_MEMBERS = 64
MAX_CONTROL = 2**20


class Package:
    """One package, over a seekable `source` of `size` bytes; `label` names it in errors.

    Raises E-ARCHIVE for what is no Debian package of format 2.
    """

    def __init__(self, label: str, size: int, source: BinaryIO) -> None:
        self.label = label
        self.size = size
        self._source = source
        self._members = self._index()
        if "debian-binary" not in self._members or not self._start("debian-binary").startswith(
            b"2."
        ):
            raise refuse(label, b"", "is no Debian package of format 2")
        self.control = self._control()
        self.name = self._package_name()

    def data(self) -> BinaryIO:
        """The packed data archive, from its beginning."""
        return self._open(self._member("data.tar"))

    def data_magic(self) -> bytes:
        """Its first bytes."""
        return self._start(self._member("data.tar"))

    def _index(self) -> dict[str, tuple[int, int]]:
        members: dict[str, tuple[int, int]] = {}
        self._source.seek(0)
        if self._source.read(len(AR_MAGIC)) != AR_MAGIC:
            raise refuse(self.label, b"", "is no Debian package: it does not begin as an ar file")
        at = len(AR_MAGIC)
        while at < self.size:
            self._source.seek(at)
            header = self._source.read(HEADER)
            size_text = header[48:58].strip(b" ")
            if len(header) != HEADER or header[58:60] != b"`\n" or not size_text.isdigit():
                raise refuse(self.label, b"", f"has a damaged ar header at byte {at}")
            name = header[:16].rstrip(b" ").rstrip(b"/").decode("ascii", "backslashreplace")
            size, start = int(size_text), at + HEADER
            if start + size > self.size:
                raise refuse(self.label, name.encode(), "is cut short")
            if name in members or len(members) >= MAX_MEMBERS:
                raise refuse(self.label, name.encode(), "is one member too many")
            members[name] = (start, size)
            at = start + size + size % 2
        return members

    def _member(self, stem: str) -> str:
        found = [n for n in self._members if n == stem or n.startswith(stem + ".")]
        if len(found) != 1:
            raise refuse(self.label, b"", f"has {len(found)} members called {stem}")
        return found[0]

    def _open(self, name: str) -> BinaryIO:
        start, size = self._members[name]
        return cast(BinaryIO, io.BufferedReader(_Slice(self._source, start, size), 2**17))

    def _start(self, name: str) -> bytes:
        return self._open(name).read(8)

    def _control(self) -> str:
        member = self._member("control.tar")
        try:
            stream = decompressed(self._open(member), self._start(member))
            with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8") as archive:
                for count, info in enumerate(archive):
                    if count > 10_000:
                        break
                    if info.isreg() and info.name.removeprefix("./") == "control":
                        reader = archive.extractfile(info)
                        if reader is not None and info.size <= MAX_CONTROL:
                            return reader.read().decode("utf-8").strip("\n")
        except DAMAGE as error:
            raise refuse(self.label, b"control", f"cannot be read: {error}") from error
        raise refuse(self.label, b"control", "is not there")

    def _package_name(self) -> str:
        from debian.deb822 import Deb822

        name = str(Deb822(self.control).get("Package", ""))
        if not name or "/" in name or name.startswith(".") or len(name) > 200:
            raise refuse(self.label, b"control", f"names the package {name[:80]!r}")
        return name


class _Slice(io.RawIOBase):
    """A part of a seekable file."""

    def __init__(self, source: BinaryIO, start: int, size: int) -> None:
        self._source, self._at, self._end = source, start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        self._source.seek(self._at)
        data = self._source.read(min(len(view), self._end - self._at))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
