"""What to say of something that is not pinned yet: what it is, why, and how to pin it."""

from __future__ import annotations

from reprobuild.core.flake import GitInput, Input
from reprobuild.errors import ReprobuildError


def open_error(output: str, what: str, said: str, declared: Input | None) -> ReprobuildError:
    """E-OUTPUT-OPEN; where a repository is wanted, it names the remote and how to give a mirror."""
    remote = declared.url if isinstance(declared, GitInput) else None
    return ReprobuildError(
        "E-OUTPUT-OPEN",
        f"output {output} is open: {said}",
        output=output,
        open=what,
        remote=remote,
        hint=mirror_hint(remote) if remote else None,
    )


def mirror_hint(url: str) -> str:
    """How to give a mirror of a repository that cannot be reached."""
    return (
        f"needed is {url}: where it cannot be reached, give a mirror in the user's configuration, "
        f'[mirrors] "{url}" = "/path/to/mirror.git", then run `reprobuild lock`'
    )


def not_as_published(where: str, what: str, stated: str, got: str) -> ReprobuildError:
    """E-TREE-MISMATCH of a pin that gives something else than was published."""
    return ReprobuildError(
        "E-TREE-MISMATCH",
        f"{where}: the heads give {what} {got}, but {stated} is published",
        key=where,
        expected=stated,
        got=got,
    )
