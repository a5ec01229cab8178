"""The list of a layer's entries that lies inside the image, one line each, in the tar's order:

    KIND MODE UID GID SIZE CONTENT ORIGIN PATH

KIND is `d`, `f`, `x` (an executable file) or `l`; MODE octal; SIZE in bytes; CONTENT a file's
SHA-256, a link's target, or `-`; ORIGIN `-`, or the number of the component's origin that the entry
came from. PATH and target are percent-encoded, so a line is ASCII whatever a name holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote_from_bytes, unquote_to_bytes

from reprobuild.errors import ReprobuildError

DIRECTORY, FILE, EXECUTABLE, LINK = "d", "f", "x", "l"
NONE = "-"
_SAFE = "/!$&'()*+,:;=@[]{}^`|~"
_PLAIN = re.compile(rb"[A-Za-z0-9_./~+-]+")


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry. `content` is a file's SHA-256 in hex digits; `target` a link's."""

    kind: str
    mode: int
    uid: int
    gid: int
    size: int
    path: bytes
    content: str = ""
    target: bytes = b""
    origin: str = NONE

    def line(self) -> bytes:
        """The line, with its end."""
        content = quote(self.target) if self.kind == LINK else self.content or NONE
        path, origin = quote(self.path), self.origin
        return line(
            self.kind, self.mode, self.uid, self.gid, self.size, content, path, origin
        ).encode("ascii")


def line(
    kind: str, mode: int, uid: int, gid: int, size: int, content: str, path: str, origin: str = NONE
) -> str:
    """An entry's line, with its end; `content` and `path` as they are written there, quoted."""
    return f"{lead(kind, mode, uid, gid)}{size} {content} {origin} {path}\n"


def lead(kind: str, mode: int, uid: int, gid: int) -> str:
    """What the lines of entries begin with that have all this in common; `after` ends them."""
    return f"{kind} {mode:04o} {uid} {gid} "


def after(lead: str, size: int, content: str, path: str) -> str:
    """`line` for many entries with the same beginning and no origin."""
    return f"{lead}{size} {content} {NONE} {path}\n"


def quote(path: bytes) -> str:
    """A path as the list writes it."""
    if _PLAIN.fullmatch(path):
        return path.decode("ascii")
    return quote_from_bytes(path, safe=_SAFE)


def parse(data: bytes) -> Iterator[Listed]:
    """The entries of a list; raises E-IMAGE-VERIFY for a line that is none."""
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            kind, mode, uid, gid, size, content, origin, path = line.decode("ascii").split(" ")
            if kind not in (DIRECTORY, FILE, EXECUTABLE, LINK):
                raise ValueError(kind)
            link = kind == LINK
            yield Listed(
                kind,
                int(mode, 8),
                int(uid),
                int(gid),
                int(size),
                unquote_to_bytes(path),
                "" if link or content == NONE else content,
                unquote_to_bytes(content) if link else b"",
                origin,
            )
        except ValueError as error:
            raise ReprobuildError(
                "E-IMAGE-VERIFY", f"line {number} of a file list inside the image is off"
            ) from error
