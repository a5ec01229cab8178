"""Telling in a few milliseconds whether anything that decides an output could have changed.

The key covers the bytes of flake, lock and component files, the stat data of every file of
fixture and path inputs, and this tool: its version, and the stat data of its own files, since in a
checkout they change without the version. Equal keys mean equal evaluations; a
changed key only means that the slow way is taken, which may still find nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from reprobuild import __version__
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.encoding import Value, encode

DOMAIN = "reprobuild/fingerprint/v0"
_PACKAGE = str(Path(__file__).parents[1])
_CACHE = "__pycache__"
_FILES = ("flake-like.toml", "flake-like.lock")


def fingerprint(directory: Path, watched: Iterable[str], wishes: Value) -> Digest:
    """The key of a project directory.

    `watched` are paths below it that count by stat data; `wishes` whatever else decides.
    """
    parts: list[bytes] = [__version__.encode(), encode(wishes), _stat_digest(_PACKAGE).raw]
    names = [*_FILES, *(f"derivations/{name}" for name in _component_files(directory))]
    for name in names:
        try:
            with (directory / name).open("rb") as file:
                parts += (name.encode(), Digest.of(file.read()).raw)
        except FileNotFoundError:
            parts += (name.encode(), b"")
    for path in sorted(set(watched)):
        parts += (path.encode(), _stat_digest(os.fspath(directory / path)).raw)
    return tagged(DOMAIN, b"".join(len(part).to_bytes(4, "big") + part for part in parts))


def _component_files(directory: Path) -> list[str]:
    try:
        return sorted(p.name for p in (directory / "derivations").iterdir() if p.suffix == ".toml")
    except FileNotFoundError:
        return []


def _stat_digest(top: str) -> Digest:
    """Names, sizes, modes, inodes and change times of everything below `top`."""
    lines: list[str] = []
    stack = [top]
    while stack:
        folder = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except (FileNotFoundError, NotADirectoryError):
            lines.append(f"{folder} absent")
            continue
        for entry in entries:
            if entry.name == _CACHE:
                continue  # written by Python itself, whenever it likes
            is_directory = entry.is_dir(follow_symlinks=False)
            stat = entry.stat(follow_symlinks=False)
            if is_directory:
                # Its names are listed anyway; its times move when Python writes a cache into it.
                lines.append(f"{entry.path} {stat.st_mode}")
                stack.append(entry.path)
                continue
            lines.append(
                f"{entry.path} {stat.st_mode} {stat.st_size} {stat.st_ino} "
                f"{stat.st_mtime_ns} {stat.st_ctime_ns}"
            )
    return Digest.of("\n".join(lines).encode("utf-8", "surrogateescape"))
