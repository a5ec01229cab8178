"""The host side of a build's writable directories."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprobuild.adapters.sandbox.command import Work
from reprobuild.core.sandboxenv import BUILD_DIRECTORY, TEMPORARY_DIRECTORY
from reprobuild.errors import ReprobuildError

_NAMES = ("build", "out", "tmp")


def places(workdir: Path) -> list[Path]:
    """The host's paths of all that a build can write to."""
    return [workdir / name for name in _NAMES]


def prepare(workdir: Path, cwd: str, uid: int | None) -> Work:
    """Makes `build`, `out` and `tmp` in `workdir`, which nobody but the build may enter.

    With `uid` they, and what a former build left in them, are given to that user. `cwd` is made
    when it lies in one of them. Raises E-DERIVATION for a `cwd` that is no clean path.
    """
    top = os.fspath(workdir)
    if not os.path.isdir(top):
        workdir.mkdir(mode=0o700, parents=True)
    os.chmod(top, 0o700)
    directories = {name: f"{top}/{name}" for name in _NAMES}
    fresh: set[str] = set()
    for name, directory in directories.items():
        try:
            os.mkdir(directory, 0o700)
            fresh.add(name)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise
        os.chmod(directory, 0o1777 if name == "tmp" else 0o755)
    for inside, name in ((BUILD_DIRECTORY, "build"), (TEMPORARY_DIRECTORY, "tmp")):
        if cwd.startswith(inside + "/"):
            rest = cwd[len(inside) + 1 :]
            if any(part in ("", ".", "..") for part in rest.split("/")):
                raise ReprobuildError("E-DERIVATION", f"{cwd!r} is no clean working directory")
            place = workdir / name
            fresh.discard(name)
            for part in rest.split("/"):
                place /= part
                if not place.is_dir():
                    place.mkdir()
                    place.chmod(0o755)  # whatever the caller's umask
    if uid is not None:
        os.chown(top, uid, uid)
        for name, directory in directories.items():
            if name in fresh:  # nothing is in it
                os.chown(directory, uid, uid)
            else:
                _give(directory, uid)
    return Work(*directories.values())


def _give(directory: str, uid: int) -> None:
    if os.stat(directory).st_uid == uid:
        return
    with os.scandir(directory) as listing:
        entries = list(listing)
    # The output directories, made a moment ago, are empty, and they are all there is in a first
    # build. What another build user left is for chown(1), which has no limit on depth.
    if all(entry.is_dir(follow_symlinks=False) and _is_empty(entry.path) for entry in entries):
        for entry in entries:
            os.chown(entry.path, uid, uid, follow_symlinks=False)
    else:
        subprocess.run(["chown", "-RhP", f"{uid}:{uid}", directory], check=True)
    os.chown(directory, uid, uid)


def _is_empty(directory: str) -> bool:
    with os.scandir(directory) as listing:
        return next(listing, None) is None


def outputs(workdir: Path, names: Sequence[str]) -> Mapping[str, Path]:
    """The outputs that exist, made readable for their owner.

    An output is a directory or a regular file; a link in its place is none.
    """
    found: dict[str, Path] = {}
    for name in names:
        path = workdir / "out" / name
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            found[name] = path
    if os.geteuid() != 0:
        for path in found.values():
            _open_up(path)
    return found


def _open_up(path: Path) -> None:
    """Gives the owner back the right to read; the store keeps only the executable bit anyway.

    What cannot be reached by its path any more stays: reading the output will say so.
    """
    pending = [path]
    while pending:
        here = pending.pop()
        with contextlib.suppress(OSError):
            mode = here.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            wanted = stat.S_IMODE(mode) | (0o700 if stat.S_ISDIR(mode) else 0o400)
            if wanted != stat.S_IMODE(mode):
                here.chmod(wanted)
            if stat.S_ISDIR(mode):
                pending += here.iterdir()
