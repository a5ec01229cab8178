"""What the integration use cases need of the world of git, as a protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from reprobuild.core.digest import GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.backend import Repository
from reprobuild.core.integration.model import IntegrationSpec


class SourceRepositories(Protocol):
    """Repositories by origin document (`{"kind": "git", "url"}`, `{"kind": "fixture", "path"}`)."""

    def resolve(self, url: str, refs: Sequence[str]) -> Mapping[str, GitOid]:
        """What refs point to now, in one look; absent refs are left out. E-OFFLINE, E-GIT-FETCH."""
        ...

    def open(
        self, origin: Mapping[str, Value], spec: IntegrationSpec
    ) -> AbstractContextManager[Repository]:
        """A repository that holds all of the spec's commits; fetched where they are not here."""
        ...
