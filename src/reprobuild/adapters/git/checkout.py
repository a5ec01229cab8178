"""A user's local checkout, for `--override INPUT=path:DIR`.

GitPython opens it, because it is the user's own repository with the user's own configuration;
nothing that is published is computed from it (an overridden build is marked dirty everywhere).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore


def capture_checkout(directory: Path, content: ContentStore, work: Path) -> Digest:
    """Stores what git would see in a checkout (tracked, and new files that are not ignored).

    A directory that is no checkout is stored as it is. Raises E-USAGE when it is no directory.
    """
    if not directory.is_dir():
        raise ReprobuildError("E-USAGE", f"{directory} is no directory", file=str(directory))
    names = _visible_files(directory)
    if names is None:
        return content.capture(directory)
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="override-", dir=work) as staging:
        for name in names:
            source, target = directory / name, Path(staging) / name
            if not os.path.lexists(source):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir() and not source.is_symlink():
                target.mkdir(exist_ok=True)  # a submodule: a pin, not content of this repository
            else:
                shutil.copy2(source, target, follow_symlinks=False)
        return content.capture(Path(staging))


def _visible_files(directory: Path) -> list[str] | None:
    import git

    try:
        repository = git.Repo(directory)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        return None
    with repository:
        listed = repository.git.ls_files("-z", cached=True, others=True, exclude_standard=True)
    return sorted({name for name in listed.split("\0") if name})
