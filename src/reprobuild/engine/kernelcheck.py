"""Kernel checks: programs of a project that run built modules on a GPU, against references.

A check says something of a record and is no part of it: what it showed is evidence, bound to the
trees that were run. A program gets the module and what it uses as paths in the environment, ends
with 0 where all agrees, with 77 where this machine cannot run it, and says so in its last line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reprobuild.core.component import KernelCheck
from reprobuild.engine.qualify import Bench, NotRun, Shown

CANNOT_RUN = 77
"""As in Automake's tests: skipped."""
PYTHON = "python3"
_LINE = 300


@dataclass(frozen=True, slots=True)
class Place:
    """A check with its trees on disk; `tree` is the digest of the module's."""

    check: KernelCheck
    tree: str
    module: Path
    uses: Mapping[str, Path]


def run_checks(
    places: Mapping[str, Place | None], output: str, project: Path, bench: Bench
) -> Shown | NotRun:
    """Runs checks, by name; None stands for one whose module is not made here.

    All must be run for there to be a result. One that fails is reported with what it said; the
    others are run all the same.
    """
    if not places:
        return NotRun(f"no component of {output} states a check")
    missing = [name for name, place in places.items() if place is None]
    if missing:
        return NotRun(f"{missing[0]} is not made here; run `reprobuild realize {output}`")
    said: list[str] = []
    wrong: list[str] = []
    modules: dict[str, str] = {}
    for name, place in places.items():
        assert place is not None
        status, line = _run(place, project, bench)
        if status == CANNOT_RUN:
            return NotRun(f"{name}: {line}")
        modules[name] = place.tree
        said.append(line)
        if status != 0:
            wrong.append(f"{name} ended with {status}: {line}")
    return Shown(not wrong, "; ".join(wrong or said), modules)


def _run(place: Place, project: Path, bench: Bench) -> tuple[int, str]:
    env = {"PYTHONDONTWRITEBYTECODE": "1", "REPROBUILD_MODULE": str(place.module)}
    for name, path in place.uses.items():
        env[f"REPROBUILD_USE_{name.upper().replace('-', '_')}"] = str(path)
    argv = [PYTHON, str(project / place.check.program), *place.check.arguments]
    status, text = bench.command(argv, env)
    lines = text.strip().splitlines()
    return status, lines[-1][:_LINE] if lines else "no output"
