"""The project's files as typed values. Every problem becomes one error that says where it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from reprobuild.adapters.toml.defaults import merge_defaults
from reprobuild.adapters.toml.explain import count_of, problems_of
from reprobuild.adapters.toml.include import Included, included_files
from reprobuild.adapters.toml.positions import Positions
from reprobuild.adapters.toml.read import Parsed, dotted, read_toml
from reprobuild.core.check import check_project
from reprobuild.core.component import Component
from reprobuild.core.files import COMPONENT_DIRECTORY, FLAKE_FILE, LOCK_FILE
from reprobuild.core.flake import Flake, Part
from reprobuild.core.lock import Lock
from reprobuild.core.problem import Problem, shown
from reprobuild.core.project import Project
from reprobuild.core.schema import is_name
from reprobuild.errors import ReprobuildError

MAX_LISTED = 20

# What else is installed beside this tool has no part in what a file means, and is not looked for.
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"

M = TypeVar("M", bound=BaseModel)


def load_flake(path: Path) -> Flake:
    """The flake in `path`, by itself: whether its references lead anywhere is not looked at.

    Raises E-FLAKE with `file`, `line`, `column`, `key`, `expected`, `got`, `nearest` and
    `problems` (at most 20 lines, the first of them the message).
    """
    return _validate(read_toml(path, shown(path.name)[1:-1], "E-FLAKE"), Flake, "E-FLAKE")


def load_lock(path: Path) -> Lock:
    """The lock in `path`; raises E-LOCK as above."""
    return _validate(read_toml(path, shown(path.name)[1:-1], "E-LOCK"), Lock, "E-LOCK")


def load_components(directory: Path) -> dict[str, Component]:
    """The components that `directory` describes, one a file, in order of their names.

    A directory that is not there describes none. Raises E-COMPONENT as above.
    """
    return {name: component for name, (component, _) in _components(directory).items()}


def load_project(directory: Path) -> Project:
    """All of a project, checked as a whole.

    Raises E-NO-FLAKE, E-FLAKE, E-COMPONENT or E-LOCK; the references between the files are
    checked last (`core.check`), so each file by itself is sound by then.
    """
    flake_path = directory / FLAKE_FILE
    if not os.path.lexists(flake_path):
        raise ReprobuildError("E-NO-FLAKE", f"there is no {FLAKE_FILE} in {directory}")
    parsed = {FLAKE_FILE: read_toml(flake_path, FLAKE_FILE, "E-FLAKE")}
    flake = _validate(parsed[FLAKE_FILE], Flake, "E-FLAKE")
    included = Included(FLAKE_FILE, flake)
    for name in included_files(directory, flake.include):
        parsed[name] = read_toml(directory / name, name, "E-FLAKE")
        problems = included.add(name, _validate(parsed[name], Part, "E-FLAKE"))
        if problems:
            raise _report(problems, {name: parsed[name].positions()}, "E-FLAKE", len(problems))
    flake = included.flake
    components: dict[str, Component] = {}
    for name, (component, source) in _components(directory / COMPONENT_DIRECTORY).items():
        components[name] = component
        parsed[source.name] = source
    problems = [included.placed(problem) for problem in check_project(flake, components)]
    if problems:
        first_file = problems[0].file
        code = "E-COMPONENT" if first_file.startswith(f"{COMPONENT_DIRECTORY}/") else "E-FLAKE"
        places = {file: parsed[file].positions() for file in {p.file for p in problems}}
        raise _report(problems, places, code, len(problems))
    lock = None
    lock_path = directory / LOCK_FILE
    if os.path.lexists(lock_path):
        parsed[LOCK_FILE] = read_toml(lock_path, LOCK_FILE, "E-LOCK")
        lock = _validate(parsed[LOCK_FILE], Lock, "E-LOCK")
    texts = {name: p.raw for name, p in parsed.items()}
    return Project(flake, components, lock, texts, included.origins)


def _components(directory: Path) -> dict[str, tuple[Component, Parsed]]:
    try:
        names = sorted(path.name for path in directory.iterdir() if path.name.endswith(".toml"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ReprobuildError(
            "E-COMPONENT", f"{directory.name} cannot be listed: {reason}", file=directory.name
        ) from error
    found: dict[str, tuple[Component, Parsed]] = {}
    for entry in names:
        name = entry.removesuffix(".toml")
        if not is_name(name):
            raise ReprobuildError(
                "E-COMPONENT",
                f"{directory.name}/{shown(entry)[1:-1]}: {shown(name)} cannot be the name of a "
                "component; use letters, digits, '-', '_', '+', no dot",
                file=f"{directory.name}/{shown(entry)[1:-1]}",
                hint="rename the file",
            )
        parsed = read_toml(directory / entry, f"{directory.name}/{entry}", "E-COMPONENT")
        parsed, problems = merge_defaults(parsed)
        if problems:
            places = {parsed.name: parsed.positions()}
            raise _report(problems, places, "E-COMPONENT", len(problems))
        found[name] = (_validate(parsed, Component, "E-COMPONENT"), parsed)
    return found


def _validate(parsed: Parsed, model: type[M], code: str) -> M:
    try:
        return model.model_validate(parsed.data, by_name=False)
    except ValidationError as error:
        positions = parsed.positions()
        count = count_of(error, positions)
        problems = problems_of(
            error, model, parsed.data, parsed.name, positions=positions, limit=MAX_LISTED
        )
    except RecursionError:
        raise ReprobuildError(
            code, f"{parsed.name} is nested too deeply", file=parsed.name
        ) from None
    if count <= MAX_LISTED:
        count = len(problems)
    raise _report(problems, {parsed.name: positions}, code, count)


def _report(
    problems: Sequence[Problem], places: Mapping[str, Positions], code: str, count: int
) -> ReprobuildError:
    """One error out of `count` problems, of which some are given: the first place leads."""
    files = list(dict.fromkeys(problem.file for problem in problems))
    rows: list[tuple[int, int, int, str, Problem]] = []
    for problem in problems:
        line, column = places[problem.file].locate(problem.path, problem.at)
        where = f"{problem.file}:{line}:{column}: "
        key = dotted(places[problem.file].written(problem.path))
        text = where + (f"{key}: " if key else "") + problem.message
        rows.append((files.index(problem.file), line, column, text, problem))
    rows.sort(key=lambda row: row[:3])
    _, line, column, text, first = rows[0]
    more = count - 1
    if more:
        text += f" (and {more} more problem{'s' if more > 1 else ''})"
    return ReprobuildError(
        code,
        text,
        file=first.file,
        line=line,
        column=column,
        key=dotted(places[first.file].written(first.path)) or None,
        expected=first.expected or None,
        got=first.got or None,
        nearest=first.nearest or None,
        problems=[row[3] for row in rows[:MAX_LISTED]] if more else None,
    )
