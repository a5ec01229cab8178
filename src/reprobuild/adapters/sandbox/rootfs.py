"""What stands where in the sandbox: from a request's mounts to single bind mounts and links.

The root is a tmpfs that is made read-only at the end, so mount points can be made anywhere. The
entries of the root file system are bound onto it one by one; a directory of it is taken apart in
the same way only where another mount has to stand inside it at a place that it lacks.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprobuild.adapters.sandbox import etc
from reprobuild.core.sandboxenv import ROOT_OURS
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Mount

OURS = ROOT_OURS

HOST_TOOLCHAIN = frozenset(
    {"bin", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "usr"}
)
"""What the grade `host-toolchain` shows of the host: where compilers live, and nothing else."""

HOST_TOOLCHAIN_ETC = frozenset({"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"})

_RESERVED = frozenset({"/", "/build", "/dev", "/etc", "/out", "/proc", "/sys", "/tmp"})  # noqa: S108


@dataclass(frozen=True, slots=True)
class Bind:
    """`source` of the host, shown read-only at `at`."""

    source: str
    at: str


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link at `at`."""

    target: str
    at: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory of the sandbox's own, at `at`."""

    at: str


Placement = Bind | Link | Folder


def arrange(mounts: Sequence[Mount], constants: Path, *, host: bool = False) -> list[Placement]:
    """The placements for `mounts`, in the order in which they are to be made.

    `constants` is the directory of the constant /etc files; with `host` the host's toolchain
    stands in for the mount at "/". What `mounts` put below /build comes last, so that it can be
    placed after the build directory. Raises E-DERIVATION for a place where nothing may stand or
    that only a link of the root file system leads to; E-SANDBOX-SETUP when a source is missing.
    """
    roots = [mount.source for mount in mounts if mount.at == "/"]
    extra = sorted((mount for mount in mounts if mount.at != "/"), key=lambda mount: mount.at)
    for mount in extra:
        check_place(mount.at)
    points = frozenset(mount.at for mount in extra)
    if host:
        roots = [Path("/")]
    out: list[Placement] = []
    for root in roots:
        names = _names(root)
        shown = names & HOST_TOOLCHAIN if host else names - OURS
        out += _show(root, "", sorted(shown), points)
    out += _etc(roots, points, constants, host=host)
    for mount in extra:
        out += _whole_or_parts(mount.source, mount.at, points)
    return out


def check_place(at: str) -> None:
    """Raises E-DERIVATION unless an input may be mounted at `at`."""
    if not at.startswith("/") or posixpath.normpath(at) != at or "\0" in at or at.startswith("//"):
        raise ReprobuildError("E-DERIVATION", f"{at[:200]!r} is no clean absolute path", at=at)
    top = "/" + at.split("/")[1]
    if at in _RESERVED or top in ("/proc", "/dev", "/sys", "/out"):
        raise ReprobuildError(
            "E-DERIVATION", f"an input cannot stand at {at}: the sandbox has its own there", at=at
        )
    if at.startswith("/etc/") and at.split("/")[2] in etc.FILES:
        raise ReprobuildError(
            "E-DERIVATION", f"an input cannot stand at {at}: that file is constant", at=at
        )


def _names(directory: Path) -> set[str]:
    try:
        return {entry.name for entry in directory.iterdir()}
    except OSError as error:
        raise ReprobuildError(
            "E-SANDBOX-SETUP",
            f"{directory} cannot be read: {error.strerror}",
            file=os.fspath(directory),
        ) from error


def _etc(
    roots: Sequence[Path], points: frozenset[str], constants: Path, *, host: bool
) -> list[Placement]:
    shown: list[Placement] = []
    for root in roots:
        directory = root / "etc"
        if directory.is_symlink() or not directory.is_dir():
            continue
        names = _names(directory) - set(etc.FILES) - etc.HIDDEN
        if host:
            names &= HOST_TOOLCHAIN_ETC
        shown += _show(directory, "/etc", sorted(names), points)
    if not shown and not any(point.startswith("/etc/") for point in points):
        return [Bind(os.fspath(constants), "/etc")]
    ours: list[Placement] = [Bind(os.fspath(constants / n), f"/etc/{n}") for n in sorted(etc.FILES)]
    return [Folder("/etc"), *shown, *ours]


def _show(
    directory: Path, at: str, names: Iterable[str], points: frozenset[str]
) -> list[Placement]:
    out: list[Placement] = []
    for name in names:
        source, place = directory / name, f"{at}/{name}"
        if place in points:
            continue
        mode = source.lstat().st_mode
        if stat.S_ISLNK(mode):
            below = [point for point in points if point.startswith(place + "/")]
            if below:
                raise ReprobuildError(
                    "E-DERIVATION",
                    f"an input cannot stand at {below[0]}: {place} is a symbolic link to"
                    f" {source.readlink()}; name the place that it leads to",
                    at=below[0],
                )
            out.append(Link(os.fspath(source.readlink()), place))
        elif stat.S_ISDIR(mode):
            out += _whole_or_parts(source, place, points)
        elif stat.S_ISREG(mode):
            out.append(Bind(os.fspath(source), place))
    return out


def _whole_or_parts(source: Path, at: str, points: frozenset[str]) -> list[Placement]:
    """`source` as one mount where all that has to stand inside it finds its place there."""
    below = [point for point in points if point.startswith(at + "/")]
    if all(_exists(source, point[len(at) + 1 :]) for point in below):
        return [Bind(os.fspath(source), at)]
    return [Folder(at), *_show(source, at, sorted(_names(source)), points)]


def _exists(directory: Path, rest: str) -> bool:
    """Whether `rest` stands below `directory` with no link on the way."""
    here = directory
    for part in rest.split("/"):
        here = here / part
        try:
            if stat.S_ISLNK(here.lstat().st_mode):
                return False
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True
