"""What `lock` asks about files, for one project (engine.pinning.FileDiscovery)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.pins import FilePin
from reprobuild.ports import ContentStore


class ProjectDiscovery:
    """`Discovery`, with the project's directory and store filled in."""

    def __init__(self, discovery: Discovery, content: ContentStore, flake_dir: Path) -> None:
        self._discovery = discovery
        self._content = content
        self._flake_dir = flake_dir

    def wheel(self, name: str, version: str, *, python: str) -> FilePin:
        """The wheel of exactly that version."""
        return self._discovery.wheel(name, version, python=python)

    def sdist(self, name: str, version: str) -> FilePin:
        """The source archive of exactly that version."""
        return self._discovery.sdist(name, version)

    def debs(
        self, suite: str, architecture: str, components: Sequence[str], packages: Sequence[str]
    ) -> Sequence[FilePin]:
        """Debian packages, in order."""
        return self._discovery.debs(suite, architecture, components, packages)

    def url(self, url: str) -> FilePin:
        """What an address gives now."""
        return self._discovery.url(url)

    def path(self, path: str) -> Digest:
        """A directory of the project, stored."""
        return self._discovery.path(path, self._content, self._flake_dir)

    def oci(self, reference: str) -> Sha256:
        """The manifest an image reference names."""
        return self._discovery.oci(reference, self._flake_dir)
