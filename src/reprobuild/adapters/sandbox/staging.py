"""Whether an unprivileged uid can get to a host path, and the way round when it cannot."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from reprobuild.adapters.sandbox.rootfs import Bind, Placement


def traversable(path: Path) -> bool:
    """Whether every directory above `path` lets every user pass."""
    for parent in Path(os.path.realpath(path)).parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            return False
    return True


@dataclass(slots=True)
class Stage:
    """Places below /tmp of a private mount namespace, for host paths nobody else could reach."""

    sources: dict[str, str] = field(default_factory=dict)
    writable: dict[str, str] = field(default_factory=dict)

    def add(self, path: Path, *, writable: bool = False) -> None:
        """Gives `path` a place."""
        into = self.writable if writable else self.sources
        into[os.fspath(path)] = f"/tmp/{'w' if writable else 'r'}{len(into)}"  # noqa: S108

    def __bool__(self) -> bool:
        return bool(self.sources or self.writable)

    def path(self, path: str) -> str:
        """Where `path`, or what is below an added path, is found on the stage."""
        places = self.sources | self.writable
        for known in sorted(places, key=len, reverse=True):
            if path == known:
                return places[known]
            if path.startswith(known.rstrip("/") + "/"):
                return places[known] + path[len(known.rstrip("/")) :]
        return path

    def rebase(self, placements: Iterable[Placement]) -> list[Placement]:
        """`placements` with their sources as they are found on the stage."""
        return [
            replace(p, source=self.path(p.source)) if isinstance(p, Bind) else p for p in placements
        ]


def stage_for(sources: Iterable[Path], workdir: Path) -> Stage:
    """A stage for what cannot be reached; empty where all of it can."""
    stage = Stage()
    paths = list(dict.fromkeys(sources))
    if all(traversable(path) for path in [*paths, workdir]):
        return stage
    for path in paths:
        if not traversable(path) or _hidden(path):
            stage.add(path)
    if not traversable(workdir) or _hidden(workdir):
        stage.add(workdir, writable=True)
    return stage


def _hidden(path: Path) -> bool:
    """Whether the stage itself, a fresh file system over /tmp, would hide `path`."""
    return Path(os.path.realpath(path)).is_relative_to("/tmp")  # noqa: S108
