"""The bytes of a directory node (tree.py says what they are), without objects.

Who walks a million files has no use for one of each kind of entry; everybody else uses `Tree`.
"""

from __future__ import annotations

DOMAIN = "reprobuild/tree/v0"
PREFIX = DOMAIN.encode() + b"\0"
"""What is hashed before a node's bytes."""
MAX_NAME = 255
MAX_TARGET = 4095
MAX_SIZE = 2**63
MAX_DEPTH = 512
"""Levels of directories below a tree's root. A name of 8 bytes at each makes a path longer than
the 4,096 bytes that Linux takes; deeper trees only serve to exhaust who walks them."""


Row = tuple[bytes, bytes, bytes, int]
"""Kind (`d`, `f`, `x` or `l`), name, the digest's 32 bytes (a link: its target), a file's size."""


_NO_NAMES = (b"", b".", b"..")


def name_is_allowed(name: bytes) -> bool:
    """Whether `name` can stand as one path component on Linux."""
    return not (name in _NO_NAMES or b"/" in name or b"\0" in name or len(name) > MAX_NAME)


def target_is_allowed(target: bytes) -> bool:
    """Whether a symbolic link can lead there."""
    return bool(target) and b"\0" not in target and len(target) <= MAX_TARGET


def file(name: bytes, digest: bytes, size: int, executable: bool) -> bytes:
    """A file's entry; `digest` are the 32 bytes of its content's digest."""
    return b"%b%b\0%b%b" % (b"x" if executable else b"f", name, digest, size.to_bytes(8, "big"))


def directory(name: bytes, digest: bytes) -> bytes:
    """A subdirectory's entry; `digest` are the 32 bytes of its node's digest."""
    return b"d%b\0%b" % (name, digest)


def link(name: bytes, target: bytes) -> bytes:
    """A symbolic link's entry."""
    return b"l%b\0%b%b" % (name, len(target).to_bytes(4, "big"), target)


def join(entries: dict[bytes, bytes]) -> bytes:
    """A node's bytes, of its entries by name."""
    return b"".join([entries[name] for name in sorted(entries)])


class NodeError(ValueError):
    """The bytes are no node; it says why."""


def rows(data: bytes) -> list[Row]:
    """What the node with exactly these bytes holds, in their order; raises NodeError."""
    found: list[Row] = []
    position, end, previous = 0, len(data), b""
    while position < end:
        kind = data[position : position + 1]
        body = data.find(b"\0", position + 1) + 1
        if not body:
            raise NodeError(f"directory node cut short at byte {position}")
        name = data[position + 1 : body - 1]
        if b"/" in name or len(name) > MAX_NAME or name in _NO_NAMES:
            raise NodeError(f"{name[:80]!r} is not allowed as a file name")
        if name <= previous:
            raise NodeError(f"directory node out of order at {name!r}")
        size = 0
        if kind in (b"f", b"x"):
            value, position = data[body : body + 32], body + 40
            size = int.from_bytes(data[body + 32 : position], "big")
            if size >= MAX_SIZE and position <= end:
                raise NodeError(f"the file {name!r} has an impossible size")
        elif kind == b"d":
            position = body + 32
            value = data[body:position]
        elif kind == b"l":
            target = body + 4
            position = target + int.from_bytes(data[body:target], "big")
            value = data[target:position]
            if position <= end and not target_is_allowed(value):
                raise NodeError(f"the link {name!r} has a target that is not allowed")
        else:
            raise NodeError(f"directory node has an unknown kind {kind!r}")
        if position > end:
            raise NodeError(f"directory node cut short at {name!r}")
        found.append((kind, name, value, size))
        previous = name
    return found
