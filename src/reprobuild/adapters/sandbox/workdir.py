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
from reprobuild.ports import BuildRequest

_NAMES = ("build", "out", "tmp")


def places(workdir: Path) -> list[str]:
    """The host's paths of all that a build can write to."""
    return [f"{workdir}/{name}" for name in _NAMES]


def left_to_build(request: BuildRequest, uid: int | None) -> list[tuple[int, str]] | None:
    """Modes and paths of what is to be made in a new work directory, in this order, by a process
    with the build's identity and umask: for us every call means to let go of the interpreter.

    The directory itself is given to `uid`. None where something is there already, or a working
    directory is wanted: then `prepare` has to do it.
    """
    top = os.fspath(request.workdir)
    if request.cwd.startswith((BUILD_DIRECTORY + "/", TEMPORARY_DIRECTORY + "/")):
        return None
    info = os.stat(top)
    if info.st_nlink != 2:  # there are directories in it, or the file system does not count them
        return None
    if stat.S_IMODE(info.st_mode) != 0o700:
        os.chmod(top, 0o700)
    if uid is not None:
        os.chown(top, uid, uid)
    outputs = [f"{top}/out/{name}" for name in request.directories]
    work = work_in(request.workdir)
    return [(0o755, work.build), (0o1777, work.tmp), *((0o755, p) for p in (work.out, *outputs))]


def work_in(workdir: Path) -> Work:
    """What a build can write to."""
    return Work(*(f"{workdir}/{name}" for name in _NAMES))


def prepare(request: BuildRequest, uid: int | None) -> Work:
    """Makes `build`, `out` with what is to stand in it, and `tmp` in the request's work directory,
    which nobody but the build may enter.

    With `uid` they, and what a former build left in them, are given to that user. `cwd` is made
    when it lies in one of them. Raises E-DERIVATION for a `cwd` that is no clean path.
    """
    workdir, cwd = request.workdir, request.cwd
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
    for name in request.directories:
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{top}/out/{name}", 0o700)
            os.chmod(f"{top}/out/{name}", 0o755)  # noqa: S103 - the build's own, and closed above
            fresh.discard("out")
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
    # The output directories, made a moment ago, are empty, and all there is in a first build.
    # What another build user left is for chown(1), which has no limit on depth.
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
        place = f"{workdir}/out/{name}"
        try:
            mode = os.lstat(place).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            found[name] = Path(place)
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
