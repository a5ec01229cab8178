"""Where a user asks for a file: what stands there already, and whether it may give way.

Files are made beside their place and renamed onto it, so that they are there whole or not at
all. A rename replaces whatever has the name: without a look at it first, `-o /dev/null` by root
would replace the machine's null device.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from reprobuild.errors import ReprobuildError

TEMPORARY = ".new-"
"""How files begin that have no name yet. Followed by eight letters whatever the name they will get:
one made of that name would be longer than it, and than NAME_MAX where it is nearly as long."""


def is_stream(path: Path) -> bool:
    """Whether a device, FIFO or socket stands there: it is written to, and never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def check_replaceable(path: Path, option: str = "") -> None:
    """Raises E-USAGE where something other than a plain file stands."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # nothing there, or what the writing itself will say
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "no plain file"
        raise ReprobuildError(
            "E-USAGE",
            " ".join(filter(None, (option, f"{path} is {what}, and stays as it is"))),
            file=str(path),
            hint="name a new file",
        )


def check_linkable(path: Path, option: str) -> None:
    """Raises E-USAGE where something stands that is no symbolic link, or no link can be made."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        _check_parent(path, option)
        return
    if not stat.S_ISLNK(mode):
        raise ReprobuildError(
            "E-USAGE",
            f"{option} {path}: what stands there is no link, and stays as it is",
            file=str(path),
            hint="name a new place, or remove what is there",
        )


def check_place(path: Path, option: str) -> None:
    """Raises E-USAGE before anything is begun, where a file could not be written at the end."""
    check_replaceable(path, option)
    _check_parent(path, option)


def _check_parent(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        raise ReprobuildError(
            "E-USAGE",
            f"{option} {path}: there is no directory {path.parent}",
            file=str(path),
            hint="make it, or name another place",
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ReprobuildError("E-USAGE", f"{option} {path} cannot be written", file=str(path))


def check_text_place(path: Path, option: str) -> None:
    """The same for a text, which may go into a device or FIFO."""
    if not is_stream(path):
        check_place(path, option)


def check_directory(path: Path, option: str) -> None:
    """Raises E-USAGE where files cannot be put below `path`, which need not be there yet."""
    place = path.absolute()
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise ReprobuildError(
            "E-USAGE",
            f"{option} {path}: {place} is no directory, and stays as it is",
            file=str(path),
            hint="name a directory",
        )
    if not os.access(place, os.W_OK | os.X_OK):
        raise ReprobuildError(
            "E-USAGE", f"{option} {path}: {place} may not be written to", file=str(path)
        )
