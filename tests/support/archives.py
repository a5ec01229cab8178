"""Archives for tests, well-formed and not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Sequence

import zstandard

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def tar_entry(
    name: str,
    data: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    mode: int = 0o644,
) -> tuple[tarfile.TarInfo, bytes]:
    """One entry of a tar archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, len(data)
    return info, data


def tar(entries: Sequence[tuple[tarfile.TarInfo, bytes]], packed: str = "tar") -> bytes:
    """A tar archive of the entries, as they are."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return PACKERS[packed](out.getvalue())


def zipped(entries: Sequence[tuple[str, bytes, int]]) -> bytes:
    """A zip of (name, content, Unix mode with kind bits)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def ar(members: Sequence[tuple[str, bytes]]) -> bytes:
    """An ar archive."""
    out = b"!<arch>\n"
    for name, data in members:
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
        out += header.encode() + data + b"\n" * (len(data) % 2)
    return out


def deb(
    package: str,
    entries: Sequence[tuple[tarfile.TarInfo, bytes]],
    *,
    packed: str = "xz",
    control: str | None = None,
) -> bytes:
    """A Debian package of the entries."""
    text = control or f"Package: {package}\nVersion: 1\nArchitecture: amd64\n"
    suffix = "" if packed == "tar" else f".{packed}"
    return ar(
        [
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", tar([tar_entry("./control", text.encode())], "gz")),
            (f"data.tar{suffix}", tar(entries, packed)),
        ]
    )
