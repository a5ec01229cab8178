"""The one tar format of ours: headers as bytes. docs/image.md states it.

POSIX ustar headers, a pax extended header in front of exactly those entries that need one, no user
or group names, no directory prefix field, two zero blocks at the end. The standard library's
writer is not used because its bytes are its own business and have moved between versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

BLOCK = 512
END = bytes(2 * BLOCK)

REGULAR = b"0"
SYMLINK = b"2"
DIRECTORY = b"5"
PAX = b"x"

_MAX_OCTAL_12 = 8**11 - 1
_MAX_OCTAL_8 = 8**7 - 1
_PAX_NAME = b"././@PaxHeader"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What an image says about an entry beyond its content.

    `mode` are the twelve permission bits; `mtime` seconds since the epoch, not negative; `xattrs`
    extended attributes by their full names.
    """

    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    xattrs: Mapping[str, bytes] = field(default_factory=dict)


def _octal(value: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, value)


def _record(key: bytes, value: bytes) -> bytes:
    """One pax record, whose length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    if len(str(length)) != len(str(rest)):
        length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


@lru_cache(maxsize=1024)
def _fixed(
    kind: bytes, mode: int, uid: int, gid: int, mtime: int
) -> tuple[bytes, bytes, bytes, int]:
    """What entries of the same attributes share: the fields between name and size, between size and
    checksum, between checksum and link, and the sum of all their bytes and of the rest's."""

    def fitting(value: int, width: int) -> bytes:
        most = _MAX_OCTAL_12 if width == 12 else _MAX_OCTAL_8
        return _octal(value if value <= most else 0, width)

    owner = _octal(mode, 8) + fitting(uid, 8) + fitting(gid, 8)
    time = fitting(mtime, 12)
    return owner, time, kind, sum(owner + time + kind + _TAIL) + 8 * 32


_TAIL = b"ustar\x0000" + bytes(64) + _octal(0, 8) * 2 + bytes(167)


def _block(kind: bytes, name: bytes, link: bytes, size: int, attributes: Attributes) -> bytes:
    said = attributes
    owner, time, kind, total = _fixed(kind, said.mode, said.uid, said.gid, said.mtime)
    name, link = name[:100], link[:100]
    length = _octal(size if size <= _MAX_OCTAL_12 else 0, 12)
    total += sum(name) + sum(link) + sum(length)
    return b"%b%b%b%b%06o\0 %b%b%b" % (
        name.ljust(100, b"\0"),
        owner,
        length,
        time,
        total,
        kind,
        link.ljust(100, b"\0"),
        _TAIL,
    )


def _plain(text: bytes) -> bool:
    return len(text) <= 100 and text.isascii()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def header(
    kind: bytes, path: bytes, attributes: Attributes, *, size: int = 0, target: bytes = b""
) -> bytes:
    """All header blocks of one entry; its content, padded to 512 bytes, follows.

    `kind` is REGULAR, SYMLINK or DIRECTORY; `path` is relative, without a final slash (directories
    get theirs here); `size` is in bytes; `target` is a link's.
    """
    name = path + b"/" if kind == DIRECTORY else path
    if (
        len(name) <= 100
        and len(target) <= 100
        and size <= _MAX_OCTAL_12
        and not attributes.xattrs
        and attributes.mtime <= _MAX_OCTAL_12
        and attributes.uid <= _MAX_OCTAL_8
        and attributes.gid <= _MAX_OCTAL_8
        and name.isascii()
        and target.isascii()
    ):
        return _block(kind, name, target, size, attributes)
    records: dict[bytes, bytes] = {}
    if not _plain(name):
        records[b"path"] = name
    if not _plain(target):
        records[b"linkpath"] = target
    if size > _MAX_OCTAL_12:
        records[b"size"] = b"%d" % size
    if attributes.mtime > _MAX_OCTAL_12:
        records[b"mtime"] = b"%d" % attributes.mtime
    if attributes.uid > _MAX_OCTAL_8:
        records[b"uid"] = b"%d" % attributes.uid
    if attributes.gid > _MAX_OCTAL_8:
        records[b"gid"] = b"%d" % attributes.gid
    for xattr, value in attributes.xattrs.items():
        records[b"SCHILY.xattr." + xattr.encode()] = value
    blocks = b""
    if records:
        body = b"".join(_record(key, value) for key, value in sorted(records.items()))
        if not (_is_utf8(name) and _is_utf8(target)):
            body = _record(b"hdrcharset", b"BINARY") + body
        blocks = _block(PAX, _PAX_NAME, b"", len(body), Attributes(0o644)) + pad(body)
    plain_name = name if _plain(name) else _ascii(name)
    plain_target = target if _plain(target) else _ascii(target)
    return blocks + _block(kind, plain_name, plain_target, size, attributes)


def _ascii(text: bytes) -> bytes:
    return bytes(byte if byte < 0x80 else 0x5F for byte in text)


def pad(data: bytes) -> bytes:
    """`data` filled up with zeros to whole blocks."""
    return data + bytes(-len(data) % BLOCK)
