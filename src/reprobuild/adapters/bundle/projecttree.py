"""A project's files as a tree of the store, and back into a directory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File, Symlink
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentReader


def capture_project(store: LocalStore, directory: Path, paths: Iterable[str]) -> Digest:
    """Stores those of the relative `paths` that exist; the tree has them at the same places."""
    builder = TreeBuilder()
    for path in paths:
        place = directory / path
        if place.is_symlink():
            raise ReprobuildError("E-USAGE", f"{path} is a link and cannot be exported", file=path)
        if place.is_dir():
            builder.add(path.encode(), Directory(store.capture(place)))
        elif place.is_file():
            with place.open("rb") as source:
                executable = os.access(place, os.X_OK)
                builder.add(path.encode(), store.add_blob(source, executable=executable))
    digest, nodes = builder.build()
    store.add_trees(nodes)
    return digest


def write_project(store: ContentReader, tree: Digest, directory: Path) -> list[str]:
    """Writes a tree's files below `directory`; the names at its top that were not there.

    What is there and equal stays; raises E-USAGE for what is there and differs, before anything
    is written. New files are made beside it and moved, so each is there whole or not at all.
    """
    directory.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".project-", dir=directory))
    try:
        _write(store, tree, made)
        names = sorted(path.name for path in made.iterdir())
        new = [name for name in names if not os.path.lexists(directory / name)]
        for name in names:
            if name not in new and not _equal(made / name, directory / name):
                raise ReprobuildError(
                    "E-USAGE",
                    f"{directory / name} is there already and differs from the bundle's",
                    hint="name another directory with --project",
                    file=str(directory / name),
                )
        for name in new:
            (made / name).rename(directory / name)
        return new
    except OSError as error:
        raise ReprobuildError(
            "E-WRITE", f"cannot write the project to {directory}: {error.strerror}"
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _write(store: ContentReader, tree: Digest, directory: Path) -> None:
    stack = [(tree, os.fsencode(directory))]
    while stack:
        digest, place = stack.pop()
        for name, entry in store.tree(digest):
            path = os.path.join(place, name)  # noqa: PTH118 - names are bytes
            if isinstance(entry, Directory):
                os.mkdir(path)  # noqa: PTH102
                stack.append((entry.digest, path))
            elif isinstance(entry, Symlink):
                os.symlink(entry.target, path)  # noqa: PTH211
            else:
                _file(store, entry, path)


def _file(store: ContentReader, entry: File, path: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o777 if entry.executable else 0o666)
    with os.fdopen(fd, "wb") as out, store.open_blob(entry.digest) as source:
        shutil.copyfileobj(source, out, 2**20)


def _equal(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    if one.is_dir():
        return other.is_dir() and all(
            os.path.lexists(other / p.name) and _equal(p, other / p.name) for p in one.iterdir()
        )
    return other.is_file() and one.read_bytes() == other.read_bytes()
