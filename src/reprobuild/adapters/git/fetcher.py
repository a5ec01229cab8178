"""Fetching a pinned source: find the objects, integrate, compare with the promise, store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from reprobuild.adapters.git.importer import import_from
from reprobuild.adapters.git.promised import integrate_promised
from reprobuild.adapters.git.sources import GitSources
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.findbase import find_base
from reprobuild.core.integration.model import (
    Integration,
    IntegrationSpec,
    SourcePin,
    SourceRequest,
)
from reprobuild.core.integration.request import pinned_spec, refs_wanted
from reprobuild.core.integration.strategies import integrate
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Reporter


class GitFetcher:
    """A `Fetcher` for `git-tree` outputs whose origin is a repository or a fixture.

    The origin is `{"kind": "git", "url", "ref"}` or `{"kind": "fixture", "path"}` together with
    `IntegrationSpec.document()`.
    """

    def __init__(self, sources: GitSources, content: ContentStore) -> None:
        self._sources, self._content = sources, content

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """Integrates and stores the tree.

        Raises E-TREE-MISMATCH naming both trees when another one came out, or what else the lock
        says and is not so; E-OFFLINE, E-CONFLICT, E-GIT-FETCH, E-GIT-MISSING-OBJECT.
        """
        assert fixed.oid is not None
        spec = IntegrationSpec.parse(origin)
        name = str(origin.get("url") or origin.get("path") or "")
        report.emit("integrate-started", name=name, heads=len(spec.heads))
        with self._sources.open(origin, spec) as repository:
            done = integrate_promised(repository, self._sources, origin, spec, fixed.oid)
            repository.supply_tree(done.tree)
            digest = import_from(repository.scratch.reader, done.tree, self._content)
        report.emit("integrate-done", name=name, tree=done.tree.hex)
        return digest


class LazyGitFetcher:
    """`GitFetcher` whose sources are only made when something is fetched."""

    def __init__(self, sources: Callable[[], GitSources], content: ContentStore) -> None:
        self._sources, self._content = sources, content

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `GitFetcher.fetch`."""
        return GitFetcher(self._sources(), self._content).fetch(fixed, origin, report)


class GitPinner:
    """What `lock` asks: where refs are now, and what integrating them gives."""

    def __init__(self, sources: GitSources) -> None:
        self._sources = sources

    def resolve(self, url: str, refs: Sequence[str]) -> dict[str, GitOid]:
        """What refs point to, in one `ls-remote`."""
        return self._sources.cache.resolve(url, refs)

    def git_spec(self, request: SourceRequest) -> tuple[IntegrationSpec, dict[str, GitOid]]:
        """Every commit of a repository's stack, and the refs that were looked up for it.

        Raises E-REF-MISSING, E-OFFLINE, E-GIT-FETCH.
        """
        wanted = refs_wanted(request)
        refs = self.resolve(request.url, wanted) if wanted else {}
        return pinned_spec(request, refs), refs

    def fixture_spec(
        self, path: str, request: SourceRequest
    ) -> tuple[IntegrationSpec, dict[str, GitOid]]:
        """As `git_spec`, of a fixture at `path` (relative to the flake)."""
        from reprobuild.adapters.git.cache import read_refs

        refs = read_refs(self._sources.fixture_repository(path), refs_wanted(request))
        return pinned_spec(request, refs), refs

    def pin_git(self, request: SourceRequest) -> SourcePin:
        """Pins base, heads and the integration tree of a repository.

        Raises E-REF-MISSING, E-CONFLICT, E-OFFLINE, E-GIT-FETCH.
        """
        origin: dict[str, Value] = {"kind": "git", "url": request.url}
        return self._pin(origin, *self.git_spec(request), request)

    def pin_fixture(self, path: str, request: SourceRequest) -> SourcePin:
        """Pins a fixture at `path` (relative to the flake); the request's url is not looked at."""
        origin: dict[str, Value] = {"kind": "fixture", "path": path}
        return self._pin(origin, *self.fixture_spec(path, request), request)

    def _pin(
        self,
        origin: Mapping[str, Value],
        spec: IntegrationSpec,
        refs: Mapping[str, GitOid],
        request: SourceRequest,
    ) -> SourcePin:
        if spec.heads and not spec.resolutions:
            spec = replace(spec, resolutions=self._sources.resolutions())
        with self._sources.open(origin, spec) as repository:
            done: Integration | None = None
            try:
                done = integrate(repository, spec, self._sources.read)
            except ReprobuildError as error:
                if request.tree is None or request.rev is not None or error.code != "E-CONFLICT":
                    raise
                failure = error
            if request.tree is not None and request.rev is None:
                if done is not None and done.tree == request.tree:
                    return SourcePin(spec, done, refs)
                base = find_base(repository, spec, request.tree, self._sources.read)
                if base is not None:
                    spec = replace(spec, base=base)
                    done = integrate(repository, spec, self._sources.read)
            if done is None:
                raise failure
            return SourcePin(spec, done, refs)
