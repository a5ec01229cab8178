"""Small edits of flake-like.toml that leave everything else as its author wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from reprobuild.adapters.toml.render_lock import replace_file
from reprobuild.errors import ReprobuildError


def edit_heads(path: Path, heads: Mapping[tuple[str, str, int], str]) -> None:
    """Writes other commits for some heads, by (output, component, number), in one step.

    A published `tree` of such a source goes, since it belongs to the heads before. Raises E-FLAKE.
    """
    try:
        document = tomlkit.parse(path.read_text("utf-8"))
        for (output, component, number), commit in heads.items():
            source = document["outputs"][output]["sources"][component]
            for head in source["heads"]:
                if head["number"] == number:
                    head["head"] = commit
            source.pop("tree", None)
    except (KeyError, TypeError, TOMLKitError) as error:
        raise ReprobuildError(
            "E-FLAKE", f"{path.name} could not be edited: {error}", file=path.name
        ) from error
    replace_file(path, tomlkit.dumps(document).encode())
