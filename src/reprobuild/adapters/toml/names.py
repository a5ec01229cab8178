"""The names of a flake's outputs, read quickly and without judging: for a shell's completion."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from reprobuild.adapters.toml.include import included_files
from reprobuild.core.files import FLAKE_FILE
from reprobuild.errors import ReprobuildError


def output_names(directory: Path) -> list[str]:
    """`OUTPUT` and `OUTPUT.COMPONENT` of every output, sorted.

    A file that cannot be read or is off adds nothing: the command itself will say so.
    """
    flake = _read(directory / FLAKE_FILE)
    include = flake.get("include", [])
    try:
        files = included_files(directory, [p for p in include if isinstance(p, str)])
    except (ReprobuildError, TypeError):
        files = []
    names: set[str] = set()
    for table in (flake, *(_read(directory / file) for file in files)):
        outputs = table.get("outputs")
        for name, output in outputs.items() if isinstance(outputs, dict) else ():
            names.add(name)
            components = output.get("components") if isinstance(output, dict) else None
            for component in components if isinstance(components, list) else ():
                names.add(f"{name}.{component}")
    return sorted(names)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
