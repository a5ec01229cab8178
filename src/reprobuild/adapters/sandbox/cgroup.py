"""Memory and process limits by control groups, where this process may make some.

Version 2 (unified) and version 1 (one hierarchy a controller) are both in use on supported
hosts. What cannot be had is named, so that a record can say so. Interfaces: the kernel's
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/{memory,pids}.rst.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "reprobuild-"
SETTLED = 32 * 2**20
"""Bytes that may stay charged to a group (cached files, mostly) for the next build to inherit."""

_serial = itertools.count()


def _write(path: Path, name: str, text: str) -> None:
    fd = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A place where groups can be made, and what they control."""

    parent: Path
    unified: bool
    controllers: frozenset[str]


def discover(process: Path = Path("/proc/self")) -> list[Hierarchy]:
    """The hierarchies in which this process can make groups with the controllers memory and pids.

    `process` is a /proc/PID directory. Never raises: a host without them gives an empty list.
    """
    try:
        groups = _own_groups((process / "cgroup").read_text())
        mounts = (process / "mountinfo").read_text()
    except OSError:
        return []
    found: list[Hierarchy] = []
    for line in mounts.splitlines():
        fields = line.split(" ")
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        root, mountpoint = fields[3], Path(fields[4])
        if kind == "cgroup":
            for controller in ("memory", "pids"):
                if controller in options and controller in groups:
                    own = _inside(mountpoint, root, groups[controller])
                    if _can_make(own):
                        found.append(Hierarchy(own, False, frozenset({controller})))
        elif kind == "cgroup2" and "" in groups:
            found += _unified(mountpoint, _inside(mountpoint, root, groups[""]))
    return found


def _own_groups(text: str) -> dict[str, str]:
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _inside(mountpoint: Path, root: str, group: str) -> Path:
    relative = group.removeprefix(root) if root != "/" else group
    return mountpoint / relative.lstrip("/")


def _can_make(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK)


def _unified(mountpoint: Path, own: Path) -> list[Hierarchy]:
    """A group that holds processes cannot have children with controllers: so try its parents."""
    for candidate in dict.fromkeys((own, own.parent, mountpoint)):
        if not candidate.is_relative_to(mountpoint) or not _can_make(candidate):
            continue
        switch = candidate / "cgroup.subtree_control"
        with contextlib.suppress(OSError):
            available = set((candidate / "cgroup.controllers").read_text().split())
            for controller in sorted({"memory", "pids"} & available):
                with contextlib.suppress(OSError):
                    switch.write_text(f"+{controller}")
            enabled = {"memory", "pids"} & set(switch.read_text().split())
            if enabled:
                return [Hierarchy(candidate, True, frozenset(enabled))]
    return []


class Group:
    """The groups of one build, one in each hierarchy; made by `make`, ended by `remove`."""

    def __init__(self, parts: list[tuple[Hierarchy, Path]], limits: tuple[int, int]) -> None:
        self._parts = parts
        self._limits = limits
        self._killed_before = 0
        self._open: dict[str, int] = {}
        """Control files that every build needs, by path."""
        self.held: frozenset[str] = frozenset()

    @classmethod
    def make(cls, hierarchies: Sequence[Hierarchy], memory: int, processes: int) -> Group:
        """Groups limited to `memory` bytes and `processes` processes and threads.

        Never raises; `held` names the limits that really hold.
        """
        name = f"{_PREFIX}{os.getpid()}-{next(_serial)}"
        parts = []
        for hierarchy in hierarchies:
            path = hierarchy.parent / name
            with contextlib.suppress(OSError):
                path.mkdir()
                parts.append((hierarchy, path))
        group = cls(parts, (memory, processes))
        group._limit()
        return group

    def _limit(self) -> None:
        memory, processes = self._limits
        held: set[str] = set()
        for hierarchy, path in self._parts:
            names = {
                "memory": ("memory.max" if hierarchy.unified else "memory.limit_in_bytes", memory),
                "pids": ("pids.max", processes),
            }
            for controller in hierarchy.controllers:
                file, value = names[controller]
                with contextlib.suppress(OSError):
                    _write(path, file, str(value))
                    held.add(controller)
            if "memory" in hierarchy.controllers and hierarchy.unified:
                for file in ("memory.swap.max", "memory.oom.group"):
                    with contextlib.suppress(OSError):
                        _write(path, file, "0" if file == "memory.swap.max" else "1")
        self.held = frozenset(held)

    def add(self, pid: int) -> None:
        """Moves a process into the groups; a refusal takes that limit out of `held`."""
        for hierarchy, path in self._parts:
            try:
                (path / "cgroup.procs").write_text(str(pid))
            except OSError:
                self.held -= hierarchy.controllers

    def renew(self, memory: int) -> bool:
        """Makes ready for another build, limited to `memory` bytes, in the same groups.

        False where that build would not be counted from nothing: what the last one left is too
        much, or the kernel (before 6.12, with version 2) cannot forget the highest use.
        """
        if memory != self._limits[0]:
            held, self._limits = self.held, (memory, self._limits[1])
            self._limit()
            if self.held != held:
                return False
        try:
            for hierarchy, path in self._parts:
                if "memory" in hierarchy.controllers:
                    self._forget_peak(hierarchy, path)
        except (OSError, ValueError):
            return False
        self._killed_before = self._killed()
        return True

    def _file(self, path: Path, name: str, *, write: bool = False) -> int:
        place = f"{path}/{name}"
        fd = self._open.get(place, -1)
        if fd < 0:
            flags = os.O_RDWR if write else os.O_RDONLY
            fd = self._open[place] = os.open(place, flags | os.O_CLOEXEC)
        return fd

    def _read(self, path: Path, name: str) -> str:
        return os.pread(self._file(path, name), 4096, 0).decode("ascii")

    def _highest(self, hierarchy: Hierarchy, path: Path) -> int:
        name = "memory.peak" if hierarchy.unified else "memory.max_usage_in_bytes"
        try:
            return self._file(path, name, write=True)
        except OSError:  # where the kernel cannot forget, it is not for writing
            return self._file(path, name)

    def _forget_peak(self, hierarchy: Hierarchy, path: Path) -> None:
        use = "memory.current" if hierarchy.unified else "memory.usage_in_bytes"
        if int(self._read(path, use)) > SETTLED:
            raise ValueError("too much is charged")
        # Version 2 keeps such a mark for each open file; writing anything sets it back.
        os.pwrite(self._highest(hierarchy, path), b"0", 0)

    def peak_memory(self) -> int:
        """The most bytes that were in use at one time, page cache included; 0 when unknown."""
        for hierarchy, path in self._parts:
            if "memory" in hierarchy.controllers & self.held:
                with contextlib.suppress(OSError, ValueError):
                    return int(os.pread(self._highest(hierarchy, path), 64, 0))
        return 0

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process because the memory limit was met."""
        return self._killed() > self._killed_before

    def _killed(self) -> int:
        for hierarchy, path in self._parts:
            if "memory" in hierarchy.controllers:
                name = "memory.events" if hierarchy.unified else "memory.oom_control"
                with contextlib.suppress(OSError, ValueError):
                    for line in self._read(path, name).splitlines():
                        key, _, value = line.partition(" ")
                        if key == "oom_kill":
                            return int(value)
        return 0

    def kill(self) -> None:
        """Ends every process in the groups, for builds that no PID namespace holds together."""
        for _, path in self._parts:
            for _attempt in range(100):
                try:
                    pids = (path / "cgroup.procs").read_text().split()
                except OSError:
                    break
                if not pids:
                    break
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.01)

    def remove(self) -> None:
        """Removes the groups; the kernel may need a moment after the last process died."""
        for _, path in self._parts:
            for pause in (0, 0.001, 0.01, 0.05, 0.2):
                time.sleep(pause)
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
        self._parts = []
        while self._open:
            os.close(self._open.popitem()[1])


def sweep(hierarchies: list[Hierarchy]) -> None:
    """Removes the empty groups that processes which are no more left behind."""
    for hierarchy in hierarchies:
        for path in hierarchy.parent.glob(f"{_PREFIX}*-*"):
            owner = path.name.removeprefix(_PREFIX).split("-")[0]
            if owner.isdigit() and not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    path.rmdir()
