"""Which wheel suits a target best: a function of the target alone, not of this interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    BuildTag,
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

# PEP 513, 571, 599: older names of certain glibc versions.
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Target:
    """CPython `python` ("3.11") on Linux `machine` with glibc 2.`glibc`."""

    python: str = "3.11"
    glibc: int = 36
    machine: str = "x86_64"

    @cached_property
    def ranks(self) -> dict[Tag, int]:
        """Every tag that runs there, by preference: 0 is best. The order is pip's."""
        major, _, minor = self.python.partition(".")
        version = (int(major), int(minor))
        interpreter = f"cp{major}{minor}"
        platforms = list(self._platforms())
        tags = [
            *cpython_tags(python_version=version, abis=[interpreter], platforms=platforms),
            *compatible_tags(version, interpreter, platforms),
        ]
        ranks: dict[Tag, int] = {}
        for tag in tags:
            ranks.setdefault(tag, len(ranks))
        return ranks

    def _platforms(self) -> Iterator[str]:
        for minor in range(self.glibc, 4, -1):
            yield f"manylinux_2_{minor}_{self.machine}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{self.machine}"
        yield f"linux_{self.machine}"

    def rank(self, tags: frozenset[Tag]) -> int | None:
        """The best rank that any of a wheel's tags has, or None when it cannot run there."""
        ranks = [self.ranks[tag] for tag in tags if tag in self.ranks]
        return min(ranks, default=None)


@dataclass(frozen=True, slots=True)
class FileName:
    """What the name of a wheel (or, with `tags` None, an sdist) says."""

    name: NormalizedName
    version: Version
    build: BuildTag = ()
    tags: frozenset[Tag] | None = None


def parse_filename(filename: str) -> FileName | None:
    """From `name-1.0-py3-none-any.whl` or `name-1.0.tar.gz`; None for anything else."""
    try:
        if filename.endswith(".whl"):
            name, version, build, tags = parse_wheel_filename(filename)
            return FileName(name, version, build, tags)
        if filename.endswith((".tar.gz", ".zip")):
            project, number = parse_sdist_filename(filename)
            return FileName(project, number)
    except (InvalidWheelFilename, InvalidSdistFilename, ValueError):
        pass
    return None
