"""What integrating, composing, auditing and starting a project need, in one hand for app/."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.adapters.git.cache import GitCache, Rewrite
from reprobuild.adapters.git.files import Pending, replace_file
from reprobuild.adapters.git.sources import GitSources
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.adapters.git.forge import Forge
    from reprobuild.core.integration.imported import Imported


@dataclass
class Resolver:
    """Makes sources, files and the forge's API out of settings.

    `project_cache` gives the project's cache directory and raises E-NO-FLAKE outside of one; then
    the objects of remotes are kept in the user's own cache.
    """

    project_cache: Callable[[], Path]
    rewrite: Rewrite
    offline: bool
    environment: Mapping[str, str]

    @cached_property
    def _root(self) -> Path:
        try:
            return self.project_cache() / "git"
        except ReprobuildError as error:
            if error.code != "E-NO-FLAKE":
                raise
        named = self.environment.get("XDG_CACHE_HOME")
        home = Path(named) if named else Path(self.environment.get("HOME", "/")) / ".cache"
        return home / "reprobuild" / "git"

    def sources(self, base: Path, files: Path) -> GitSources:
        """Repositories, relative addresses starting from `base`; patch files lie below `files`."""
        root = self._root
        cache = GitCache(root, rewrite=self.rewrite, offline=self.offline, base=base)
        return GitSources(cache, root / "fixtures", files)

    def pending_files(self, directory: Path) -> Callable[[str], Pending]:
        """Opens files of a directory (made on first use) that appear whole or not at all."""

        def pending(name: str) -> Pending:
            directory.mkdir(parents=True, exist_ok=True)
            return Pending(directory / name)

        return pending

    def replace_file(self, path: Path, content: bytes) -> None:
        """Gives a file new content, whole or not at all; raises E-WRITE."""
        try:
            replace_file(path, content)
        except OSError as error:
            raise ReprobuildError(
                "E-WRITE", f"cannot write {path}: {error.strerror}", file=str(path)
            ) from error

    def forge(self) -> Forge:
        """The forge's API."""
        from reprobuild.adapters.git.forge import Forge

        return Forge(self.environment, offline=self.offline)

    def new_project(self, directory: Path, imported: Imported) -> list[str]:
        """Writes a first flake and its component files; the names written.

        Raises E-USAGE when one of them is there already, and then writes none.
        """
        from reprobuild.adapters.toml.new_flake import new_files

        files = new_files(imported)
        taken = [name for name in files if os.path.lexists(directory / name)]
        if taken:
            raise ReprobuildError(
                "E-USAGE", f"{directory / taken[0]} is there already", file=taken[0]
            )
        for name in reversed(files):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(directory / name, files[name].encode())
        return list(files)
