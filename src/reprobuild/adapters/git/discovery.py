"""What `lock` asks of git, for the inputs of a flake (engine.pinning.GitDiscovery)."""

from __future__ import annotations

from pathlib import Path

from reprobuild.adapters.git.fetcher import GitPinner
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.flake import FixtureInput, GitInput
from reprobuild.core.integration.model import IntegrationSpec, SourcePin, SourceRequest


class GitDiscovery:
    """Resolves refs where the input lies, and integrates heads there."""

    def __init__(self, pinner: GitPinner, flake_dir: Path) -> None:
        self._pinner = pinner
        self._flake_dir = flake_dir
        self._texts: dict[str, Digest] = {}

    def tip(self, declared: GitInput | FixtureInput, rev: str | None) -> tuple[GitOid, GitOid]:
        """The commit at the input's ref (or `rev`) and its tree."""
        url = declared.url if isinstance(declared, GitInput) else ""
        request = SourceRequest(
            url=url, ref=declared.ref, rev=GitOid.parse(rev) if rev is not None else None
        )
        pin = self.source(declared, request)
        return pin.spec.base, pin.integration.tree

    def source(self, declared: GitInput | FixtureInput, request: SourceRequest) -> SourcePin:
        """Base and heads pinned, and the tree they give."""
        if isinstance(declared, FixtureInput):
            return self._pinner.pin_fixture(declared.path, request)
        return self._pinner.pin_git(request)

    def spec(self, declared: GitInput | FixtureInput, request: SourceRequest) -> IntegrationSpec:
        """Every commit filled in, and nothing integrated."""
        if isinstance(declared, FixtureInput):
            return self._pinner.fixture_spec(declared.path, request)[0]
        return self._pinner.git_spec(request)[0]

    def text(self, declared: FixtureInput) -> Digest:
        """The digest of a fixture's text, read once."""
        from reprobuild.adapters.git.fixture import fixture_digest
        from reprobuild.adapters.inner import inner_directory

        if declared.path not in self._texts:
            directory = inner_directory(self._flake_dir, declared.path)
            self._texts[declared.path] = fixture_digest(directory)
        return self._texts[declared.path]
