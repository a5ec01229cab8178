"""Where a project and its store lie, as plain text.

`settings.py` speaks of the same as paths. A run with nothing to do needs these few lines and
nothing of the rest, and importing `pathlib` takes it longer than its answer.
"""

from __future__ import annotations

import os

from reprobuild.core.files import FLAKE_FILE


def absolute(path: str) -> str:
    """`path` from the root on, without empty and `.` parts: what `Path(path).absolute()` reads.

    `..` stays, for it may follow a link.
    """
    whole = path if path.startswith("/") else f"{os.getcwd()}/{path}"
    # POSIX: exactly two slashes at the beginning may mean something else than one.
    root = "//" if whole.startswith("//") and not whole.startswith("///") else "/"
    return root + "/".join(part for part in whole.split("/") if part not in ("", "."))


def flake_directory(named: str | None) -> str | None:
    """The directory `named` (-C), else the nearest from here upwards, that holds a flake."""
    start = absolute("." if named is None else named)
    while not _is_flake(f"{start}/{FLAKE_FILE}"):
        if named is not None or not start.strip("/"):
            return None
        start = start[: start.rindex("/")] or "/"
    return start


def _is_flake(path: str) -> bool:
    """What stands there and is no file is one that is off: it must not hide behind one above."""
    return os.path.lexists(path) and not os.path.isdir(path)


def store_directory(named: str | None, by_environment: str | None, flake: str) -> str:
    """The store: `named` (--store), else `by_environment`, else `store/` beside the flake."""
    if named is None:
        named = by_environment or None
    return absolute(f"{flake.rstrip('/')}/store" if named is None else named)
