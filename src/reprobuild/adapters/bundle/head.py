"""What makes a bundle start itself: a shell script at its head, a zip with a program at its end.

`sh FILE` reads the script and stops at its `exit`; `python3 FILE` finds the zip archive at the
end and runs its `__main__.py`. Both unpack the tool, a gzipped tar right behind the script.
"""

from __future__ import annotations

import hashlib
import io
from importlib.resources import files

from reprobuild.core.bundle.format import TRAILER_SIZE

_WIDTH = 20  # digits, so that the script's size does not depend on the numbers in it


def make_head(tool: bytes) -> bytes:
    """The script, and `tool` (a gzipped tar, or nothing) behind it."""
    return _script(len(tool)) + tool


def _script(size: int) -> bytes:
    text = _text("start.sh.txt")
    offset = len(_fill(text, 0, 0))
    return _fill(text, offset, size)


def _fill(text: str, offset: int, size: int) -> bytes:
    # plain decimal numbers: a leading zero would make them octal for the shell
    return (
        text.replace("@OFFSET@", str(offset).ljust(_WIDTH))
        .replace("@SIZE@", str(size).ljust(_WIDTH))
        .encode()
    )


def _text(name: str) -> str:
    return (files("reprobuild.adapters.bundle") / name).read_text("utf-8")


def make_boot(tool: bytes) -> bytes:
    """The zip archive, whose comment (the bundle's trailer) is announced but not yet there."""
    import zipfile

    program = (
        _text("start.py.txt")
        .replace("@OFFSET@", str(len(_script(len(tool)))))
        .replace("@SIZE@", str(len(tool)))
        .replace("@SHA256@", hashlib.sha256(tool).hexdigest())
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        entry = zipfile.ZipInfo("__main__.py")
        entry.external_attr = 0o644 << 16
        archive.writestr(entry, program)
        archive.comment = bytes(TRAILER_SIZE)
    return out.getvalue()[:-TRAILER_SIZE]
