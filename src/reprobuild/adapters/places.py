"""Where a user asks for a file: what stands there already, and whether it may give way.

Files are made beside their place and renamed onto it, so that they are there whole or not at
all. A rename replaces whatever has the name: without a look at it first, `-o /dev/null` by root
would replace the machine's null device.
"""

from __future__ import annotations

import stat
from pathlib import Path

from reprobuild.errors import ReprobuildError


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
    """Raises E-USAGE where something stands that is no symbolic link."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISLNK(mode):
        raise ReprobuildError(
            "E-USAGE",
            f"{option} {path}: what stands there is no link, and stays as it is",
            file=str(path),
            hint="name a new place, or remove what is there",
        )
