"""The few messages of the Remote Execution API v2 that are named by their bytes.

Directory, Command and Action are content: their digest is their identity, so their bytes have
to come out the same everywhere. Protocol Buffers promise that to no one, so they are written
here: fields in order of their numbers, none that has its default value, as the API's
specification (remote_execution.proto, "canonical") asks. Numbers are from that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MTIME = 1
"""Seconds of the epoch: the time of every input, as in the sandbox of one's own."""


@dataclass(frozen=True, slots=True, order=True)
class Blob:
    """What the wire calls a Digest: 64 hex digits and size in bytes. By which function is known to
    who speaks (`core.remote.function`)."""

    hash: str
    size: int

    def pack(self) -> bytes:
        """40 bytes, for a memo."""
        return bytes.fromhex(self.hash) + self.size.to_bytes(8, "big")

    @classmethod
    def unpack(cls, data: bytes) -> Blob:
        """From `pack`'s bytes."""
        return cls(data[:32].hex(), int.from_bytes(data[32:40], "big"))

    @property
    def message(self) -> bytes:
        """The Digest message."""
        return _text(1, self.hash) + _number(2, self.size)


@dataclass(frozen=True, slots=True)
class WireFile:
    """A FileNode."""

    name: str
    blob: Blob
    executable: bool


@dataclass(frozen=True, slots=True)
class WireLink:
    """A SymlinkNode."""

    name: str
    target: str


def directory(
    files: Iterable[WireFile], directories: Iterable[tuple[str, Blob]], links: Iterable[WireLink]
) -> bytes:
    """A Directory: each kind sorted by name; everything with the one constant time."""
    out = bytearray()
    for file in sorted(files, key=_name):
        body = _text(1, file.name) + _field(2, file.blob.message)
        if file.executable:
            body += b"\x20\x01"
        out += _field(1, body + _PROPERTIES_6)
    for name, blob in sorted(directories, key=lambda row: row[0].encode()):
        out += _field(2, _text(1, name) + _field(2, blob.message))
    for link in sorted(links, key=_name):
        out += _field(3, _text(1, link.name) + _text(2, link.target))
    return bytes(out) + _PROPERTIES_5


def command(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    output_paths: Iterable[str],
    platform: Mapping[str, str],
) -> bytes:
    """A Command; paths relative as the API wants them."""
    out = b"".join(_text(1, word, keep=True) for word in argv)
    for name, value in sorted(env.items(), key=lambda item: item[0].encode()):
        out += _field(2, _text(1, name) + _text(2, value))
    if platform:
        out += _field(5, properties(platform))
    out += _text(6, cwd)
    for path in sorted(output_paths, key=str.encode):
        out += _text(7, path, keep=True)
    return out


def action(
    command_blob: Blob,
    root: Blob,
    timeout: int,
    platform: Mapping[str, str],
    *,
    do_not_cache: bool = False,
    salt: bytes = b"",
) -> bytes:
    """An Action; `timeout` in seconds."""
    out = _field(1, command_blob.message) + _field(2, root.message)
    out += _field(6, _number(1, timeout))
    if do_not_cache:
        out += b"\x38\x01"
    if salt:
        out += _field(9, salt)
    if platform:
        out += _field(10, properties(platform))
    return out


def properties(platform: Mapping[str, str]) -> bytes:
    """A Platform: properties sorted by name."""
    rows = sorted(platform.items(), key=lambda item: item[0].encode())
    return b"".join(_field(1, _text(1, name) + _text(2, value)) for name, value in rows)


def _name(node: WireFile | WireLink) -> bytes:
    return node.name.encode()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _text(number: int, text: str, *, keep: bool = False) -> bytes:
    """A string; an empty one is the default and left out, unless it is one of a list."""
    return _field(number, text.encode()) if text or keep else b""


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value) if value else b""


# NodeProperties with nothing but mtime, as field 6 of a FileNode and field 5 of a Directory.
_MTIME = _field(2, _number(1, MTIME))
_PROPERTIES_6 = _field(6, _MTIME)
_PROPERTIES_5 = _field(5, _MTIME)


def split_tree(data: bytes) -> tuple[bytes, list[bytes]]:
    """The bytes of a Tree message's root and of its children.

    As they are: a Directory is named by its bytes, and parsing and writing again may give others.
    Raises ValueError for what is no such message.
    """
    root, children, position = b"", [], 0
    while position < len(data):
        key, position = _read_varint(data, position)
        if key & 7 != 2:
            raise ValueError(f"a field of wire type {key & 7}")
        size, position = _read_varint(data, position)
        if position + size > len(data):
            raise ValueError("cut short")
        body = data[position : position + size]
        position += size
        if key >> 3 == 1:
            root = body
        elif key >> 3 == 2:
            children.append(body)
    return root, children


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def tree(root: bytes, children: Iterable[bytes]) -> bytes:
    """A Tree message of Directory messages."""
    return _field(1, root) + b"".join(_field(2, child) for child in children)
