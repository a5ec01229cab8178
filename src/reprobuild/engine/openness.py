"""What to say of something that is not pinned yet: what it is, why, and how to pin it."""

from __future__ import annotations

from reprobuild.core.flake import GitInput, Input
from reprobuild.errors import ReprobuildError


def open_error(output: str, what: str, said: str, declared: Input | None) -> ReprobuildError:
    """E-OUTPUT-OPEN; where a repository is wanted, it names the remote and what to do about it."""
    remote = declared.url if isinstance(declared, GitInput) else None
    hint = mirror_hint(remote) if remote else None
    if "E-REF-MISSING: " in said:
        hint = (
            "check the number or the name of the ref in the flake: the repository was reached and "
            "does not have it"
        )
        if remote and not remote.startswith(("/", "file://")):
            hint += f" (a mirror that stands for {remote} may be out of date: update it)"
        hint += "; then run `reprobuild lock`"
    return ReprobuildError(
        "E-OUTPUT-OPEN",
        f"output {output} is open: {said}",
        output=output,
        open=what,
        remote=remote,
        hint=hint,
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
