"""Directories of this machine: nothing that it needs speaks of a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reprobuild.adapters.fetch.filetree import text
from reprobuild.adapters.inner import inner_directory, inputs_words
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Reporter


class PathFetcher:
    """Takes a directory of this machine as it is, and checks that it is what was pinned.

    Relative paths are taken from `base`, the directory of the flake.
    """

    def __init__(self, content: ContentStore, base: Path) -> None:
        self._content = content
        self._base = base

    def capture(self, path: str) -> Digest:
        """Stores the directory and returns its tree.

        Raises E-FETCH where there is none, E-FLAKE for one that a link leads out of the project
        to, and E-OUTPUT-SPECIAL, E-OUTPUT-CHANGED or E-OUTPUT-READ.
        """
        directory = inner_directory(self._base, path)
        if not directory.is_dir():
            raise ReprobuildError(
                "E-FETCH",
                f"the path input {path} is no directory",
                hint="name a directory; relative paths start at the flake's own",
                file=str(directory),
            )
        with inputs_words(directory):
            return self._content.capture(directory)

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `ports.Fetcher`."""
        path = text(origin, "path")
        if fixed.tree is None:
            raise ReprobuildError("E-LOCK", f"a {fixed.kind!r} pin where a tree's was expected")
        tree = self.capture(path)
        if tree != fixed.tree:
            raise ReprobuildError(
                "E-FETCH-MISMATCH",
                f"the directory {path} now has the content {tree}, but {fixed.tree} is pinned",
                hint="`reprobuild lock --update INPUT` pins it as it is now",
                origin=path,
                expected=str(fixed.tree),
                got=str(tree),
            )
        return tree
