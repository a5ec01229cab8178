"""A project as it was at a git revision, written to a directory of ours.

GitPython opens the user's own repository, as for checkout.py. What a tree of it says is not
trusted: every name is checked, nothing is written through a link.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from reprobuild.core.files import COMPONENT_DIRECTORY, FLAKE_FILE, LOCK_FILE
from reprobuild.core.tree import check_name
from reprobuild.errors import ReprobuildError

MAX_FILES = 200_000
MAX_BYTES = 2 * 2**30
MAX_TEXT = 64 * 2**20
MAX_PARTS = 1000


def export_revision(directory: Path, revision: str, into: Path) -> Path:
    """Writes the project that `directory` (inside a checkout) held at `revision`; where it lies.

    Of the project: flake, lock, components, resolutions, and the files and fixtures that the flake
    names; a path input is pinned by its tree and not needed. Submodules become empty directories.
    Raises E-RELEASE-SIDE where there is no repository, no
    such revision, or the directory was not there then.
    """
    import git
    from git.exc import BadName, GitError

    if not revision or revision.startswith("-") or "\0" in revision:
        raise _bad(revision, "is no revision")
    try:
        repository = git.Repo(directory, search_parent_directories=True)
    except GitError as error:
        raise _bad(revision, f"{directory} lies in no git repository") from error
    with repository:
        if repository.working_tree_dir is None:
            raise _bad(revision, "the repository has no working tree")
        top = Path(repository.working_tree_dir).resolve()
        below = directory.resolve().relative_to(top)
        try:
            tree: Any = repository.commit(revision).tree
            for part in below.parts:
                tree = tree / part
        except (BadName, ValueError, KeyError, IndexError, GitError) as error:
            what = f"/{below.as_posix()}" if below.parts else ""
            raise _bad(revision, f"is no commit with {what or 'a tree'}") from error
        into.mkdir(parents=True)
        _Writer(revision, into, _wanted(tree, revision)).write(tree)
    return into


def _wanted(tree: Any, revision: str) -> set[str]:
    """The project's own files and directories, by their paths in it."""
    flake = _parsed(tree, FLAKE_FILE)
    if flake is None:
        raise _bad(revision, f"has no {FLAKE_FILE}")
    parts = _included(tree, flake.get("include"))
    found = {FLAKE_FILE, LOCK_FILE, COMPONENT_DIRECTORY, "resolutions", *parts}
    stack: list[Any] = [flake, *(_parsed(tree, name) or {} for name in parts)]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            stack += value.values()
            path = value.get("path")
            if isinstance(path, str) and value.get("kind") != "path":
                found.add(_plain(path))
    return found


def _plain(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _parsed(tree: Any, path: str) -> dict[str, Any] | None:
    """A TOML file of a tree; empty for one that is off (reading the project says what is, and
    where), None where there is none."""
    import tomllib

    try:
        blob = tree / path
        return tomllib.loads(blob.data_stream.read(MAX_TEXT).decode()) if blob.size else {}
    except KeyError:
        return None
    except (ValueError, RecursionError, AttributeError):
        return {}


def _included(tree: Any, patterns: object) -> list[str]:
    """The files that a flake includes, as adapters/toml/include.py finds them in a directory."""
    found: set[str] = set()
    for pattern in patterns if isinstance(patterns, list) else ():
        if not isinstance(pattern, str):
            continue
        folder, _, name = _plain(pattern).rpartition("/")
        if name != "*.toml":
            found.add(_plain(pattern))
            continue
        with suppress(KeyError, TypeError):
            names = [entry.name for entry in tree / folder if entry.type == "blob"]
            found |= {f"{folder}/{n}" for n in names if n.endswith(".toml") and n[0] != "."}
    return sorted(found)[:MAX_PARTS]


def _bad(revision: str, why: str) -> ReprobuildError:
    return ReprobuildError(
        "E-RELEASE-SIDE", f"git revision {revision[:100]!r}: {why}", side=f"git:{revision[:100]}"
    )


class _Writer:
    def __init__(self, revision: str, into: Path, wanted: set[str]) -> None:
        self.revision, self.into, self.wanted = revision, into, wanted
        self.above = {"/".join(p.split("/")[:n]) for p in wanted for n in range(p.count("/") + 1)}
        self.files, self.bytes = 0, 0

    def write(self, tree: Any, prefix: str = "", *, whole: bool = False) -> None:
        for entry in tree:
            name = os.fsencode(entry.name)
            check_name(name)
            if name == b".git":
                raise _bad(self.revision, "holds a .git of its own")
            place = prefix + entry.name
            mine = whole or place in self.wanted
            if not mine and place not in self.above:
                continue
            path = self.into / place
            if entry.type == "tree":
                path.mkdir()
                self.write(entry, place + "/", whole=mine)
            elif entry.type == "blob" and mine:
                self._blob(entry, path)
            elif entry.type == "commit":
                path.mkdir()

    def _blob(self, entry: Any, path: Path) -> None:
        self.files += 1
        self.bytes += entry.size
        if self.files > MAX_FILES or self.bytes > MAX_BYTES:
            raise _bad(self.revision, f"holds more than {MAX_FILES} files or {MAX_BYTES} bytes")
        data = entry.data_stream.read()
        if entry.mode == 0o120000:
            path.symlink_to(os.fsdecode(data))
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = 0o755 if entry.mode & 0o100 else 0o644
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            file.write(data)
