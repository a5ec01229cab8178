"""A flake in several files: which files `include` means, and putting them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reprobuild.core.flake import Flake, Part
from reprobuild.core.problem import Problem
from reprobuild.errors import ReprobuildError

TABLES = ("inputs", "toolchains", "outputs")
MAX_FILES = 1000


def included_files(directory: Path, patterns: Iterable[str]) -> list[str]:
    """The files that the patterns mean, relative to the project, sorted, each once.

    `DIRECTORY/*.toml` may match none; a file that is named must be there, which reading it says.
    Raises E-FLAKE for a directory that cannot be listed, and for more than 1000 files.
    """
    found: set[str] = set()
    for pattern in patterns:
        folder, _, name = pattern.rpartition("/")
        if name != "*.toml":
            found.add(pattern)
            continue
        try:
            entries = [entry.name for entry in (directory / folder).iterdir()]
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise ReprobuildError(
                "E-FLAKE", f"{folder}, which is included, cannot be listed: {reason}", file=folder
            ) from error
        found |= {f"{folder}/{e}" for e in entries if e.endswith(".toml") and e[0] != "."}
    if len(found) > MAX_FILES:
        raise ReprobuildError("E-FLAKE", f"the flake includes {len(found)} files; {MAX_FILES} do")
    return sorted(found)


@dataclass(slots=True)
class Included:
    """A flake that grows by its parts; `origins` says which of them declared something."""

    file: str
    flake: Flake
    origins: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, file: str, part: Part) -> list[Problem]:
        """Takes a part in; what is declared already comes back as problems of this file."""
        problems: list[Problem] = []
        update: dict[str, Any] = {}
        for table in TABLES:
            there: dict[str, object] = getattr(self.flake, table)
            more: dict[str, object] = getattr(part, table)
            for name in more:
                if name in there:
                    other = self.origins.get((table, name), self.file)
                    message = f"`{name}` is declared in {other}, too"
                    problems.append(Problem(file, (table, name), message, at="key"))
                self.origins[table, name] = file
            update[table] = {**there, **more}
        self.flake = self.flake.model_copy(update=update)
        return problems

    def placed(self, problem: Problem) -> Problem:
        """The problem in the file where that part of the flake stands."""
        if problem.file != self.file or len(problem.path) < 2:
            return problem
        table, name = str(problem.path[0]), str(problem.path[1])
        return replace(problem, file=self.origins.get((table, name), self.file))
