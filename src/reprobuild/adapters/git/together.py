"""One repository over the objects of two sources, for comparing what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.adapters.git.sources import GitSources
from reprobuild.core.encoding import Value
from reprobuild.core.integration.model import IntegrationSpec


@contextmanager
def open_together(
    wanted: Sequence[tuple[GitSources, Mapping[str, Value], IntegrationSpec]],
) -> Iterator[GitRepository]:
    """A repository that holds the commits of every (sources, origin, spec).

    What is nowhere at hand is fetched, unless the sources are offline: then E-OFFLINE.
    """
    places: dict[Path, None] = {}
    for sources, origin, spec in wanted:
        places |= dict.fromkeys(sources.locate(origin, spec).sources)
    sha256 = any(len(spec.base.hex) == 64 for _, _, spec in wanted)
    with Scratch(list(places), sha256=sha256) as scratch:
        yield GitRepository(scratch)
