"""Directories of a project that its flake names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprobuild.errors import ReprobuildError


def inner_directory(base: Path, path: str) -> Path:
    """The directory at `path`, which starts at `base`, whether it is there or not.

    A relative one must lie below `base`, its links resolved, and be no link itself: what lies
    elsewhere is not the project's, and another machine has something else there. Raises E-FLAKE.
    """
    directory = base / path
    if Path(path).is_absolute():
        return directory
    if directory.is_symlink():
        raise ReprobuildError(
            "E-FLAKE",
            f"the input's directory {path} is a symbolic link",
            hint="name the directory that it leads to; it must lie below the flake's own",
            path=str(directory),
        )
    try:
        real, top = directory.resolve(), base.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise ReprobuildError(
            "E-FLAKE", f"the input's directory {path} cannot be found: {error}", path=str(directory)
        ) from error
    if not real.is_relative_to(top):
        raise ReprobuildError(
            "E-FLAKE",
            f"the input's directory {path} leads through a symbolic link out of the project, "
            f"to {real}",
            hint="copy what is wanted below the flake's directory",
            path=str(directory),
        )
    return directory


@contextmanager
def inputs_words(directory: Path) -> Iterator[None]:
    """What capturing `directory` raises speaks of an input, not of what a build left."""
    try:
        yield
    except ReprobuildError as error:
        if error.code == "E-OUTPUT-SPECIAL":
            error.hint = f"remove it from {directory}, or name an input without it"
        raise
