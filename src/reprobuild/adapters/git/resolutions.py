"""Recorded resolutions on disk: `resolutions/<key>.json` in the flake's directory, and their blobs.

The key is a digest of the path and the three blobs that are resolved, so one conflict has one
record. `<key>.blob` beside it holds the answer's bytes; a record whose `result` is null says that
the file goes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from reprobuild.adapters.git.files import read_below, replace_file
from reprobuild.core.integration.jsonform import Fields, load
from reprobuild.core.integration.model import Resolution, parse_resolution, resolution_document
from reprobuild.errors import ReprobuildError

DIRECTORY = "resolutions"
CODE = "E-RESOLUTION"
_LIMIT = 64 * 1024


def resolution_key(resolution: Resolution) -> str:
    """What names a resolution's files."""
    sides = (resolution.ancestor, resolution.ours, resolution.theirs)
    parts = [resolution.path, *(s.hex if s is not None else "-" for s in sides)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


class Resolutions:
    """The recorded resolutions of a project."""

    def __init__(self, flake_dir: Path) -> None:
        self._flake_dir = flake_dir

    def load(self) -> tuple[Resolution, ...]:
        """All of them, in order of their names; raises E-RESOLUTION for one that is off."""
        directory = self._flake_dir / DIRECTORY
        if not directory.is_dir():
            return ()
        found = []
        for path in sorted(directory.glob("*.json")):
            found.append(self._read(path))
        return tuple(found)

    def _read(self, path: Path) -> Resolution:
        name = f"{DIRECTORY}/{path.name}"
        try:
            data = read_below(self._flake_dir, name, limit=_LIMIT)
            fields = Fields.of(load(data, CODE, name), CODE, name)
            if fields.values.get("format") != 0:
                raise fields.error("format", "must be 0")
            resolution = parse_resolution(fields.values)  # type: ignore[arg-type]
        except ReprobuildError as error:
            if error.code == CODE:
                raise
            raise ReprobuildError(CODE, f"{name}: {error.message}", file=name) from error
        except (KeyError, TypeError, ValueError) as error:
            raise ReprobuildError(CODE, f"{name}: {error!s:.200}", file=name) from error
        key = resolution_key(resolution)
        if path.stem != key:
            raise ReprobuildError(
                CODE, f"{name}: what it resolves belongs into {key}.json", file=name
            )
        return resolution

    def write(self, resolution: Resolution, content: bytes | None) -> str:
        """Records one, whole or not at all; the file's name relative to the project."""
        directory = self._flake_dir / DIRECTORY
        directory.mkdir(exist_ok=True)
        key = resolution_key(resolution)
        if content is not None:
            replace_file(directory / f"{key}.blob", content)
        place = f"{DIRECTORY}/{key}.blob" if content is not None else ""
        document = {"format": 0, **resolution_document(replace(resolution, content_path=place))}
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        replace_file(directory / f"{key}.json", text.encode())
        return f"{DIRECTORY}/{key}.json"
