"""Whether an unprivileged uid can get to a host path, and the way round when it cannot."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from reprobuild.adapters.sandbox.rootfs import Bind, Placement


def traversable(path: Path, known: dict[str, bool] | None = None) -> bool:
    """Whether every directory above `path` lets every user pass.

    `known` remembers the answers for directories, for as long as the caller keeps it.
    """
    known = {} if known is None else known
    text = os.fspath(path)
    above = os.path.dirname(text)
    if above in known and not os.path.islink(text):
        return known[above]
    passes = _open_to_all(os.path.dirname(os.path.realpath(text)), known)
    if os.path.isabs(text) and not os.path.islink(text):
        known[above] = passes
    return passes


def _open_to_all(directory: str, known: dict[str, bool]) -> bool:
    if directory not in known:
        passes = bool(os.stat(directory).st_mode & stat.S_IXOTH)
        parent = os.path.dirname(directory)
        known[directory] = passes and (parent == directory or _open_to_all(parent, known))
    return known[directory]


@dataclass(slots=True)
class Stage:
    """Places below /tmp of a private mount namespace, for host paths nobody else could reach."""

    places: dict[str, str] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Gives `path` a place."""
        self.places[os.fspath(path)] = f"/tmp/{len(self.places)}"  # noqa: S108

    def __bool__(self) -> bool:
        return bool(self.places)

    def directories(self) -> set[str]:
        """Those added paths that are directories."""
        return {path for path in self.places if Path(path).is_dir()}

    def path(self, path: str) -> str:
        """Where `path`, or what is below an added path, is found on the stage."""
        for known in sorted(self.places, key=len, reverse=True):
            if path == known:
                return self.places[known]
            if path.startswith(known.rstrip("/") + "/"):
                return self.places[known] + path[len(known.rstrip("/")) :]
        return path

    def rebase(self, placements: Iterable[Placement]) -> list[Placement]:
        """`placements` with their sources as they are found on the stage."""
        return [
            replace(p, source=self.path(p.source)) if isinstance(p, Bind) else p for p in placements
        ]


def stage_for(paths: Iterable[Path], known: dict[str, bool] | None = None) -> Stage:
    """A stage for what cannot be reached; empty where all of it can. `known` is `traversable`'s."""
    stage = Stage()
    wanted = list(dict.fromkeys(paths))
    known = {} if known is None else known
    if all(traversable(path, known) for path in wanted):
        return stage
    for path in wanted:
        if not traversable(path, known) or _hidden(path):
            stage.add(path)
    return stage


def _hidden(path: Path) -> bool:
    """Whether the stage itself, a fresh file system over /tmp, would hide `path`."""
    return Path(os.path.realpath(path)).is_relative_to("/tmp")  # noqa: S108
