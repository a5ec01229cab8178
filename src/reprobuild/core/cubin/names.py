"""Names that a build makes up, put in one form, so that what differs only in them is seen.

nvcc calls intermediate files `tmpxft_<pid>_…`, and gives what has internal linkage a name out of a
checksum of the source's path, the file's name and (where a unit defines nothing external) of the
seed, or else of the file's time and the process's id: `_GLOBAL__N__9b38a233_4_a_cu_b5ff8b2f_4530`,
`_INTERNAL_…`, `__nv_module_id`.
"""

from __future__ import annotations

import re
from enum import IntEnum

_TEMPORARY = re.compile(rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}[-_]\d{1,6}_")
_UNIT_FILE = re.compile(rb"[^/\0]*\.(cudafe1\.(?:cpp|c|gpu|stub\.c)|reg\.c)\Z")
_UNIT = re.compile(rb"_([0-9a-f]{8})_(\d{1,3})_")
_LENGTH = re.compile(
    rb"(?<!\d)\d{1,6}(?=_GLOBAL__N_|_INTERNAL_|__device_stub_|__nv_static_|__fatbinwrap_)"
)
_REST = re.compile(rb"_([0-9a-f]{8})(_\d{1,10})?")
_SUFFIX = re.compile(rb"\.(?:cu|cuh|h|hh|hpp|hxx|inc|inl|c|cc|cpp|cxx|ptx|ii|gpu|o)\b")
_PATH_LETTERS = re.compile(rb"[A-Za-z0-9_.+@~/-]*")
_MAX_PATH = 4096
_DATE = re.compile(
    rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d{4}"
    rb"|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d"
)


class Level(IntEnum):
    """How much is put in one form; each level includes those before it."""

    EXACT = 0
    TEMPORARY = 1
    """Names of temporary files and process ids."""
    PATH = 2
    """What is derived from the source's path: checksums in names, directories of source files."""
    DATE = 3
    """Dates and times, as `__DATE__` and `__TIME__` give them."""


def normal(text: bytes, level: Level) -> bytes:
    """`text` (a name, or any bytes that names lie in) with made-up names in one form."""
    if level == Level.EXACT:
        return text
    given = text
    text = _TEMPORARY.sub(b"", text)
    text = _LENGTH.sub(b"", text)
    text = _units(text, level)
    if level >= Level.PATH:
        text = _without_directories(text)
    if text != given or (level >= Level.PATH and _SUFFIX.search(text)):
        # What follows a string of another length is padded differently.
        text = re.sub(rb"\0+", b"\0", text)
    return _DATE.sub(b"", text) if level >= Level.DATE else text


def _without_directories(text: bytes) -> bytes:
    """Source files by their names alone. Takes time in proportion to the text, whatever it is:
    each stretch is looked at once, from its file's suffix backwards."""
    kept: list[bytes] = []
    at = seen = 0
    for match in _SUFFIX.finditer(text):
        dot = match.start()
        stretch = text[max(seen, dot - _MAX_PATH) : dot]
        letters = _PATH_LETTERS.match(stretch[::-1])
        assert letters is not None
        slash = text.rfind(b"/", dot - letters.end(), dot)
        if slash >= 0:
            kept.append(text[at : dot - letters.end()])
            at = slash + 1
        seen = match.end()
    return b"".join((*kept, text[at:]))


def unit_file(name: bytes) -> bytes:
    """The name of a unit's intermediate file, which stands for the object's own, in one form."""
    return _UNIT_FILE.sub(rb"unit.\1", name)


def _units(text: bytes, level: Level) -> bytes:
    """Checksums and process ids taken out of unit names; a mangled name may hold several."""
    kept: list[bytes] = []
    at = 0
    for match in _UNIT.finditer(text):
        end = match.end() + int(match[2])
        file = text[match.end() : end]
        if match.start() < at or b"_cu" not in file[-5:] or not file.isascii():
            continue
        checksum = b"H" if level >= Level.PATH else match[1]
        kept += (text[at : match.start()], b"_", checksum, b"_", file)
        own = _REST.match(text, end)
        if own is not None:
            # Beside a process id it is of the source file's time, else of the seed.
            volatile = own[2] or level >= Level.PATH
            kept += (b"_H" if volatile else b"_" + own[1], b"_P" if own[2] else b"")
            end = own.end()
        at = end
    return b"".join((*kept, text[at:])) if kept else text
