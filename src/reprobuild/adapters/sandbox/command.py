"""The words of a bubblewrap call, as pure functions: nothing is looked at or run here."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprobuild.adapters.sandbox.rootfs import Bind, Folder, Placement
from reprobuild.core.sandboxenv import (
    BUILD_DIRECTORY,
    HOSTNAME,
    OUTPUT_DIRECTORY,
    TEMPORARY_DIRECTORY,
)

CLOSED = (
    "--unshare-all",
    "--unshare-user",
    "--uid",
    "0",
    "--gid",
    "0",
    "--cap-drop",
    "ALL",
    "--disable-userns",
    "--die-with-parent",
    "--clearenv",
    "--hostname",
    HOSTNAME,
)


@dataclass(frozen=True, slots=True)
class Work:
    """Host paths of a build's writable directories."""

    build: str
    out: str
    tmp: str


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Inherited descriptor numbers: the filter program, the status stream, the start signal."""

    seccomp: int
    status: int = -1
    block: int = -1


def options(
    placements: Sequence[Placement],
    work: Work,
    env: Mapping[str, str],
    cwd: str,
    descriptors: Descriptors,
    *,
    terminal: bool = False,
) -> list[str]:
    """bubblewrap's options, all but the command itself.

    With `terminal` the session is kept, for a caller that made a pseudo-terminal of its own.
    """
    out = list(CLOSED)
    if not terminal:
        out.append("--new-session")
    inside_build = [p for p in placements if p.at.startswith(BUILD_DIRECTORY + "/")]
    inside_tmp = [p for p in placements if p.at.startswith(TEMPORARY_DIRECTORY + "/")]
    later = {*inside_build, *inside_tmp}
    out += _place(p for p in placements if p not in later)
    # The source is the host's /proc/sys: bubblewrap covers the new one only where it could be
    # written at this moment, and that says nothing about the network's part of it.
    out += ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    out += ("--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108
    out += ("--remount-ro", "/dev")
    out += ("--bind", work.tmp, TEMPORARY_DIRECTORY)
    out += ("--bind", work.build, BUILD_DIRECTORY)
    out += ("--bind", work.out, OUTPUT_DIRECTORY)
    out += _place(inside_tmp)
    out += _place(inside_build)
    out += ("--remount-ro", "/")
    for name, value in sorted(env.items()):
        out += ("--setenv", name, value)
    out += ("--chdir", cwd)
    out += ("--seccomp", str(descriptors.seccomp))
    if descriptors.status >= 0:
        out += ("--json-status-fd", str(descriptors.status))
    if descriptors.block >= 0:
        out += ("--block-fd", str(descriptors.block))
    return out


def _place(placements: Iterable[Placement]) -> list[str]:
    out: list[str] = []
    for placement in placements:
        if isinstance(placement, Bind):
            out += ("--ro-bind", placement.source, placement.at)
        elif isinstance(placement, Folder):
            out += ("--dir", placement.at)
        else:
            out += ("--symlink", placement.target, placement.at)
    return out


def as_user(uid: int) -> list[str]:
    """The prefix that gives up root for `uid`, its group of the same number and no others."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all"]


def staged(stage: str, places: Mapping[str, str], directories: Container[str]) -> list[str]:
    """The prefix that shows host paths at places an unprivileged user can get to.

    Run by real root: in a mount namespace of its own, the keys of `places` appear at their
    values, paths below /tmp, whatever stands above them on the host. `stage` is an empty
    directory; `directories` says which keys are directories and not files. All of it replaces
    itself by exec, so that the sandbox stays the direct child of who started it: an intermediate
    process without capabilities could not pass on the parent's death to another user's process.
    """
    quoted = shlex.quote(stage)
    script = [f"mount -t tmpfs -o mode=755 stage {quoted}"]
    for source, place in places.items():
        at = shlex.quote(stage + place.removeprefix(TEMPORARY_DIRECTORY))
        script.append(f"mkdir {at}" if source in directories else f": > {at}")
        script.append(f"mount --bind -- {shlex.quote(source)} {at}")
    script += [f"mount --rbind {quoted} {TEMPORARY_DIRECTORY}", 'exec "$@"']
    namespace = ["unshare", "--mount", "--propagation", "private", "--"]
    return [*namespace, "/bin/sh", "-eu", "-c", "; ".join(script), "stage"]
