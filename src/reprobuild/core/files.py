"""The names of a project's files."""

from __future__ import annotations

FLAKE_FILE = "flake-like.toml"
LOCK_FILE = "flake-like.lock"
COMPONENT_DIRECTORY = "derivations"


def component_file(name: str) -> str:
    """The path, relative to the project, of the file that describes component `name`."""
    return f"{COMPONENT_DIRECTORY}/{name}.toml"
