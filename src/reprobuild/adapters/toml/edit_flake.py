"""Small edits of flake-like.toml that leave everything else as its author wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from reprobuild.adapters.toml.render_lock import replace_file
from reprobuild.core.files import FLAKE_FILE
from reprobuild.errors import ReprobuildError

Head = tuple[str, str, int]


def edit_heads(
    directory: Path, heads: Mapping[Head, str], origins: Mapping[tuple[str, str], str]
) -> None:
    """Writes other commits for some heads, by (output, component, number), each file in one step.

    `origins` says which file declares an output that the flake itself does not. A published `tree`
    or patch of such a source goes, since it belongs to the heads before. Raises E-FLAKE.
    """
    files: dict[str, dict[Head, str]] = {}
    for place, commit in heads.items():
        files.setdefault(origins.get(("outputs", place[0]), FLAKE_FILE), {})[place] = commit
    for file, edits in files.items():
        _edit(directory / file, file, edits)


def _edit(path: Path, name: str, heads: Mapping[Head, str]) -> None:
    try:
        document = tomlkit.parse(path.read_text("utf-8"))
        for (output, component, number), commit in heads.items():
            source = document["outputs"][output]["sources"][component]
            for head in source["heads"]:
                if head["number"] == number:
                    head["head"] = commit
            for stated in ("tree", "patch-sha256"):
                source.pop(stated, None)
    except (KeyError, TypeError, TOMLKitError) as error:
        raise ReprobuildError(
            "E-FLAKE", f"{name} could not be edited: {error}", file=name
        ) from error
    replace_file(path, tomlkit.dumps(document).encode())
