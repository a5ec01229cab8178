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


_TAIL = b"ustar\x0000" + bytes(64) + _octal(0, 8) * 2 + bytes(167)


@lru_cache(maxsize=1024)
def _form(kind: bytes, mode: int, uid: int, gid: int, mtime: int) -> tuple[bytes, int]:
    """The block of entries with the same attributes, where name, size, checksum and link are to be
    put in; and the sum of all its other bytes."""

    def fitting(value: int, width: int) -> bytes:
        most = _MAX_OCTAL_12 if width == 12 else _MAX_OCTAL_8
        return _octal(value if value <= most else 0, width)

    owner = _octal(mode, 8) + fitting(uid, 8) + fitting(gid, 8)
    time = fitting(mtime, 12)
    block = b"%b" + owner + b"%b" + time + b"%06o\0 " + kind + b"%b" + _TAIL
    return block, sum(owner + time + kind + _TAIL) + 8 * 32


def _block(kind: bytes, name: bytes, link: bytes, size: int, attributes: Attributes) -> bytes:
    said = attributes
    form, total = _form(kind, said.mode, said.uid, said.gid, said.mtime)
    name, link = name[:100], link[:100]
    length = _octal(size if size <= _MAX_OCTAL_12 else 0, 12)
    total += sum(name) + sum(link) + sum(length)
    return form % (name.ljust(100, b"\0"), length, total, link.ljust(100, b"\0"))


def _plain(text: bytes) -> bool:
    return len(text) <= 100 and text.isascii()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _shared(attributes: Attributes) -> bool:
    """Whether a plain header can say the attributes."""
    return not (
        attributes.xattrs
        or attributes.mtime > _MAX_OCTAL_12
        or attributes.uid > _MAX_OCTAL_8
        or attributes.gid > _MAX_OCTAL_8
    )


class Headers:
    """`header` for many files, or directories, with the same attributes: they are laid out once."""

    __slots__ = ("_attributes", "_form", "_kind", "_most", "_sum")

    def __init__(self, kind: bytes, attributes: Attributes) -> None:
        self._kind, self._attributes = kind, attributes
        said = attributes
        form, self._sum = _form(kind, said.mode, said.uid, said.gid, said.mtime)
        self._form = form[: -len(_TAIL) - 2] + bytes(100) + _TAIL
        self._most = 100 if _shared(said) else -1

    def of(self, path: bytes, size: int = 0) -> bytes:
        """The header blocks of one; a directory's path ends with a slash here."""
        if len(path) <= self._most and size <= _MAX_OCTAL_12 and path.isascii():
            length = b"%011o\0" % size
            total = self._sum + sum(path) + sum(length)
            return self._form % (path.ljust(100, b"\0"), length, total)
        return header(self._kind, path.removesuffix(b"/"), self._attributes, size=size)


def header(
    kind: bytes, path: bytes, attributes: Attributes, *, size: int = 0, target: bytes = b""
) -> bytes:
    """All header blocks of one entry; its content, padded to 512 bytes, follows.

    `kind` is REGULAR, SYMLINK or DIRECTORY; `path` is relative, without a final slash (directories
    get theirs here); `size` is in bytes; `target` is a link's.
    """
    name = path + b"/" if kind == DIRECTORY else path
    if _plain(name) and _plain(target) and size <= _MAX_OCTAL_12 and _shared(attributes):
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
