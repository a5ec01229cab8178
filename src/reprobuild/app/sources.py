"""Where pinned content comes from: repositories, mirrors, files, and who pins them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.adapters.fetch.settings import FetchSettings
    from reprobuild.adapters.git.discovery import GitDiscovery
    from reprobuild.adapters.git.sources import GitSources
    from reprobuild.app.run import Run
    from reprobuild.core.digest import Digest
    from reprobuild.core.mirrors import Mirrors
    from reprobuild.engine.pinning import Pinner
    from reprobuild.ports import Fetcher


class Sources:
    """Where pinned content comes from: repositories, mirrors, files, and who pins them."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def git_sources(self) -> GitSources:
        """Git repositories and fixtures, with their object cache."""
        from reprobuild.adapters.git.cache import GitCache
        from reprobuild.adapters.git.sources import GitSources

        home = self._run.store.path / "cache" / "git"
        cache = GitCache(
            home,
            rewrite=self.mirrors.candidates,
            offline=self._run.offline,
            base=self._run.flake_dir,
        )
        return GitSources(cache, fixtures=home / "fixtures", flake_dir=self._run.flake_dir)

    @cached_property
    def mirrors(self) -> Mirrors:
        """The `[mirrors]` table of the user's configuration."""
        from reprobuild.core.mirrors import parse_mirrors

        table = self._run.settings.config.get("mirrors", {})
        if not isinstance(table, dict):
            raise ReprobuildError("E-CONFIG", "[mirrors] must be a table", key="mirrors")
        return parse_mirrors(table)

    @cached_property
    def fetch_settings(self) -> FetchSettings:
        """How files are downloaded."""
        from reprobuild.adapters.fetch.settings import FetchSettings

        return FetchSettings(
            partial_dir=self._run.store.path / "cache" / "partial",
            offline=self._run.offline,
            mirrors=self.mirrors,
            cancel=self._run.cancel,
            reporter=self._run.reporter,
        )

    @cached_property
    def fetchers(self) -> Fetcher:
        """What obtains pinned content, by kind of origin."""
        from reprobuild.adapters.fetch.fetchers import Fetchers, Lazy, file_fetchers

        def from_git() -> Fetcher:
            from reprobuild.adapters.git.fetcher import GitFetcher

            return GitFetcher(self.git_sources, self._run.store)

        git = Lazy(from_git)
        files = file_fetchers(self._run.store, self.fetch_settings, base=self._run.flake_dir)
        return Fetchers({**files, "git": git, "fixture": git})

    def pinner(self) -> Pinner:
        """What makes pins, over the real world."""
        from reprobuild.adapters.fetch.discovery import Discovery
        from reprobuild.adapters.fetch.project import ProjectDiscovery
        from reprobuild.engine.pinning import Pinner

        files = Discovery(self.fetch_settings, report=self._run.reporter)
        return Pinner(
            files=ProjectDiscovery(files, self._run.store, self._run.flake_dir),
            git=self.git_discovery(),
        )

    def git_discovery(self) -> GitDiscovery:
        """What says where the flake's refs are, and what its heads give."""
        from reprobuild.adapters.git.discovery import GitDiscovery
        from reprobuild.adapters.git.fetcher import GitPinner
        from reprobuild.core.integration.flakerefs import refs_of

        self.git_sources.cache.expect(refs_of(self._run.project.flake))
        return GitDiscovery(GitPinner(self.git_sources), self._run.flake_dir)

    def check_pins(self) -> None:
        """Integrates what the lock pins anew, as far as it is at hand: nothing is fetched or kept.

        Raises what is wrong with a pin, E-TREE-MISMATCH for one that says what is not so.
        """
        import tempfile

        from reprobuild.adapters.git.cache import GitCache
        from reprobuild.adapters.git.promised import PinCheck
        from reprobuild.adapters.git.sources import GitSources

        flake, lock = self._run.project.flake, self._run.project.lock
        if lock is None or not any(output.sources for output in lock.outputs.values()):
            return
        cache = GitCache(
            self._run.store_path / "cache" / "git",
            rewrite=self.mirrors.candidates,
            offline=True,
            base=self._run.flake_dir,
        )
        with tempfile.TemporaryDirectory(prefix="reprobuild-") as scratch:
            sources = GitSources(cache, fixtures=Path(scratch), flake_dir=self._run.flake_dir)
            PinCheck(sources, flake, lock).run()

    def capture_checkout(self, directory: Path) -> Digest:
        """Stores a user's local checkout, for `--override`."""
        from reprobuild.adapters.git.checkout import capture_checkout

        return capture_checkout(directory, self._run.store, self._run.store.path / "build")
