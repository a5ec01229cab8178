"""Static archives: `ar`'s format as GNU binutils write it.

    archive = "!<arch>\\n" member*
    member  = name 16, time 12, uid 6, gid 6, mode 8, size 10 bytes of text, "`\\n", content;
              padded to 2 bytes

`//` holds long names, which others name as `/OFFSET`; `/` and `/SYM64/` hold the symbols' index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reprobuild.core.cubin.elf import malformed

MAGIC = b"!<arch>\n"


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive."""

    name: bytes
    data: bytes


def members(archive: bytes) -> Iterator[Member]:
    """The files in an archive, in order, the index left out; raises E-CUBIN for damage."""
    if not archive.startswith(MAGIC):
        raise malformed("not an archive")
    at, long_names = len(MAGIC), b""
    while at + 60 <= len(archive):
        name, size_text = archive[at : at + 16].rstrip(b" "), archive[at + 48 : at + 58]
        if archive[at + 58 : at + 60] != b"`\n" or not size_text.strip().isdigit():
            raise malformed(f"an archive's header is off at byte {at}")
        start = at + 60
        end = start + int(size_text)
        if end > len(archive):
            raise malformed("an archive is cut short")
        if name == b"//":
            long_names = archive[start:end]
        elif name not in (b"/", b"/SYM64/"):
            yield Member(_name(name, long_names), archive[start:end])
        at = end + (end & 1)


def _name(name: bytes, long_names: bytes) -> bytes:
    if name.startswith(b"/") and name[1:].isdigit():
        name = long_names[int(name[1:]) :].split(b"\n", 1)[0]
    return name.removesuffix(b"/")
