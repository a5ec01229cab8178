"""The output of a release that follows another, in a file of its own, its author's words kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date as Date
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from reprobuild.adapters.toml.load import load_project
from reprobuild.adapters.toml.render_lock import replace_file
from reprobuild.core.files import FLAKE_FILE
from reprobuild.core.project import Project
from reprobuild.core.schema import is_name
from reprobuild.core.succession import RENAMED, mentions, next_revision, renamed
from reprobuild.errors import ReprobuildError

DIRECTORY = "releases"


@dataclass(frozen=True, slots=True)
class NewRelease:
    """What was written: the output, the files, and the places that still name the old revision."""

    output: str
    revision: str
    written: tuple[str, ...]
    still: tuple[str, ...]


def new_release(
    directory: Path, project: Project, old: str, revision: str | None, date: Date
) -> NewRelease:
    """Writes `releases/NEW.toml`, and includes it where the flake does not do so already.

    It has everything that OLD's output has, less what was published and shown of it (its digests,
    results of gates, evidence, status); its revision is the next one unless given. Nothing that
    exists is changed but the flake's `include`. Raises E-UNKNOWN-INSTALLABLE for an output that is
    not there, E-USAGE for one without a release, a revision that cannot be counted on, or a name
    that is taken, E-FLAKE for a file that cannot be read again, E-WRITE. What cannot be read
    afterwards is taken back.
    """
    output = project.flake.outputs.get(old)
    if output is None:
        raise ReprobuildError("E-UNKNOWN-INSTALLABLE", f"the flake has no output {old!r}", got=old)
    if output.release is None:
        raise ReprobuildError(
            "E-USAGE", f"{old} has no [release] that another could follow", output=old
        )
    before = output.release.revision
    taken = {
        other.release.revision
        for other in project.flake.outputs.values()
        if other.release is not None and other.release.codename == output.release.codename
    }
    after = next_revision(before) if revision is None else revision
    while revision is None and after in taken:
        after = next_revision(after)
    if after is None or after == before or not is_name(after):
        raise ReprobuildError(
            "E-USAGE",
            f"say the new revision with --revision: {after or before!r} is none that can follow",
            revision=after or before,
        )
    name = renamed(old, before, after)
    if name == old:
        name = f"{output.release.codename}-{after}"
    file = f"{DIRECTORY}/{name}.toml"
    if name in project.flake.outputs or os.path.lexists(directory / file):
        raise ReprobuildError(
            "E-USAGE", f"{name} exists already", file=file, hint="say another --revision"
        )
    origin = project.origins.get(("outputs", old), FLAKE_FILE)
    table = _output(directory / origin, origin, old)
    _move_on(table, before, after, date)
    still = tuple(mentions(table.unwrap(), before, (name,)))
    return NewRelease(name, after, _write(directory, file, _text(name, old, table)), still)


def _write(directory: Path, file: str, text: str) -> tuple[str, ...]:
    """Writes the file and the include; both are as before where the project cannot be read then."""
    if (directory / DIRECTORY).is_symlink():
        raise ReprobuildError(
            "E-USAGE", f"{DIRECTORY}/ is a link: what it leads to is not written to", file=DIRECTORY
        )
    flake = Path(os.path.realpath(directory / FLAKE_FILE))
    try:
        before = flake.read_bytes()
        after = _included(before.decode("utf-8"), file).encode()
        (directory / DIRECTORY).mkdir(exist_ok=True)
        try:
            replace_file(directory / file, text.encode())
            replace_file(flake, after)
            load_project(directory)
        except BaseException:
            (directory / file).unlink(missing_ok=True)
            replace_file(flake, before)
            raise
    except OSError as error:
        raise ReprobuildError(
            "E-WRITE", f"{file} cannot be written: {error.strerror or error}", file=file
        ) from error
    return (file,) if before == after else (file, FLAKE_FILE)


def _output(path: Path, file: str, name: str) -> Table:
    try:
        table = tomlkit.parse(path.read_bytes().decode("utf-8"))["outputs"][name]
    except (KeyError, OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise ReprobuildError("E-FLAKE", f"{file} cannot be read again: {error}", file=file) from (
            error
        )
    if isinstance(table, Table):
        return table
    # Written in one line, by dotted keys or here and there: its comments cannot come along.
    plain = tomlkit.item(table.unwrap())
    assert isinstance(plain, Table)
    return plain


_SHOWN = (
    ("published",),
    ("gates", "*", "published"),
    ("documents", "contract", "number"),
    ("documents", "contract", "evidence"),
    ("documents", "runbook", "status"),
    ("documents", "runbook", "qualification"),
    ("documents", "runbook", "boundaries"),
)
"""What was published and shown of the old release: of the new one it is not true yet."""


def _leave_out(table: Any, path: Sequence[str]) -> None:
    key, rest = path[0], path[1:]
    if not rest:
        table.pop(key, None)
        return
    for name in list(table) if key == "*" else [key]:
        below = table.get(name)
        if isinstance(below, dict):
            _leave_out(below, rest)


def _move_on(table: Table, before: str, after: str, date: Date) -> None:
    for path in _SHOWN:
        _leave_out(table, path)
    for holder, key in _texts(table):
        holder[key] = renamed(str(holder[key]), before, after)
    release: Any = table["release"]
    release["revision"] = after
    release["date"] = date


def _texts(holder: Any, own: bool = False) -> Iterator[tuple[Any, Any]]:
    """Every text under a key that names the release, as (container, key)."""
    items = holder.items() if isinstance(holder, dict) else enumerate(holder)
    for key, value in list(items):
        named = own or key in RENAMED
        if isinstance(value, str):
            if named:
                yield holder, key
        elif isinstance(value, dict | list):
            yield from _texts(value, named and isinstance(value, list))


def _text(name: str, old: str, table: Table) -> str:
    out = tomlkit.document()
    out.add(tomlkit.comment(f"{name}, begun from {old} by `reprobuild release new`."))
    out.add(tomlkit.nl())
    out.add("format", tomlkit.item(0))
    out.add(tomlkit.nl())
    outputs = tomlkit.table(is_super_table=True)
    outputs.add(name, table)
    out.add("outputs", outputs)
    lines = out.as_string().replace("\r\n", "\n").rstrip("\n").split("\n")
    # A comment after the last blank line is the heading of what followed in OLD's file.
    end = len(lines)
    while end and lines[end - 1].startswith("#"):
        end -= 1
    if end and not lines[end - 1]:
        lines = lines[:end]
    return "\n".join(lines).rstrip("\n") + "\n"


def _included(text: str, file: str) -> str:
    """The flake's text with `file` among what it includes."""
    document = tomlkit.parse(text)
    patterns = document.get("include")
    if patterns is None:
        document["include"] = [file]
    elif not any(str(p) in (file, f"{DIRECTORY}/*.toml") for p in patterns):
        patterns.append(file)
    else:
        return text
    return tomlkit.dumps(document)
