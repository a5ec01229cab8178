"""Partial clones: who has promised what they lack (gitrepository-layout(5), partial-clone.txt)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from reprobuild.adapters.git.plumbing import clean_environment, git_directory, local_path, run
from reprobuild.core.integration.address import check_url
from reprobuild.core.redact import redact
from reprobuild.errors import ReprobuildError

_CHAIN = 4
"""A partial clone of a partial clone of …; further than anybody goes."""


def promisors(git_dir: Path) -> list[str]:
    """The addresses of a partial clone's promisors, in its own order; of another repository none.

    Its configuration is read as data, by name: nothing else in it is heeded.
    """
    if not any((git_dir / "objects/pack").glob("*.promisor")):
        return []
    argv = ["config", "--file", str(git_dir / "config"), "--null", "--get-regexp", r"^remote\."]
    _, out, _ = run(argv, env=clean_environment(), ok=(0, 1, 3, 128))
    addresses: dict[bytes, str] = {}
    promised: list[bytes] = []
    for row in out.split(b"\0"):
        key, _, value = row.partition(b"\n")
        remote, _, name = key.rpartition(b".")
        if name == b"url":
            addresses.setdefault(remote, value.decode("utf-8", "surrogateescape"))
        elif name in (b"promisor", b"partialclonefilter") and remote not in promised:
            promised.append(remote)
    return [addresses[remote] for remote in promised if remote in addresses]


def with_promisors(git_dir: Path) -> list[Path]:
    """The repository and the promisors that lie on this machine, read in place like itself.

    One that is elsewhere is never asked: the address came from a file that nobody has vouched for.
    """
    found = [git_dir]
    for here in found:
        if len(found) > _CHAIN:
            break
        for address in promisors(here):
            with suppress(ReprobuildError):
                path = local_path(check_url(address))
                if path is not None and path.is_absolute():
                    there = git_directory(path)
                    found += [there] if there not in found else []
    return found


@contextmanager
def saying_what_is_partial(sources: Sequence[Path]) -> Iterator[None]:
    """Adds to E-GIT-MISSING-OBJECT which of the repositories are partial, and what helps then."""
    try:
        yield
    except ReprobuildError as error:
        if error.code != "E-GIT-MISSING-OBJECT":
            raise
        partial = [(str(s), redact(a)) for s in sources for a in promisors(s)[:1]]
        if partial:
            error.facts["partial"] = [f"{path} of {address}" for path, address in partial]
            error.hint = (
                f"{partial[0][0]} is a partial clone, and {partial[0][1]} is not asked on its "
                "word: give that address as the repository, and the clone as its mirror in "
                "[mirrors]; or bring what is missing with `git fetch --refetch --no-filter`"
            )
        raise
