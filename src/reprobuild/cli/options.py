"""Options and arguments that several commands share, and their parsing."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App

_LEAST_MEMORY = 16 * 2**20
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text: str) -> int:
    """Bytes from `8G`, `512MiB`, `1000`; raises E-USAGE."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ReprobuildError("E-USAGE", f"{text!r} is no size; say 8G or 512M", got=text)
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_memory(text: str) -> int:
    """Bytes of memory for builds; raises E-USAGE, also for less than any build takes."""
    size = parse_size(text)
    if size < _LEAST_MEMORY:
        raise ReprobuildError(
            "E-USAGE", f"{text} of memory is less than any build takes; say 8G or 512M", got=text
        )
    return size


def machine_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def split_directory(text: str) -> tuple[str | None, str]:
    """`DIR#REST` in its two parts; the directory is None where none was given."""
    directory, hash_, rest = text.rpartition("#")
    return (directory if hash_ else None), rest


def in_flake(app: App, texts: tuple[str, ...]) -> tuple[App, tuple[str, ...]]:
    """The app in the directory that `DIR#…` names, and the installables without it.

    Raises E-USAGE when two directories are named at once.
    """
    parts = [split_directory(text) for text in texts]
    directories = {directory for directory, _ in parts if directory is not None}
    if len(directories) > 1:
        raise ReprobuildError(
            "E-USAGE",
            "one call works on one flake directory; these are two: "
            + ", ".join(sorted(directories)),
        )
    if directories:
        directory = Path(directories.pop() or ".")
        if app.settings.directory is not None:
            directory = app.settings.directory / directory
        app.settings = replace(app.settings, directory=directory)
    return app, tuple(rest for _, rest in parts)


def complete_outputs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Names of outputs for a shell's completion; none where there is no readable flake."""
    from reprobuild.app import App
    from reprobuild.settings import Settings

    given = (context.find_root().params or {}).get("directory")
    try:
        names = App(Settings(directory=Path(given) if given else None)).output_names()
    except ReprobuildError:
        return []
    return [name for name in names if name.startswith(incomplete)]


installable_argument = click.argument(
    "installable", default="", required=False, shell_complete=complete_outputs
)


def wrote(app: App, path: str) -> None:
    """Names a file that was written, for people; what went into a pipe or device needs no name."""
    if not app.json and Path(path).is_file():
        click.echo(path)
