"""What discovery and fetching share, each part made when it is first needed.

The user's pip and apt are asked once in a process, and only by a run that needs them.
"""

from __future__ import annotations

import threading
from functools import cached_property

from reprobuild.adapters.fetch.aptsources import AptConfig, read_apt_config
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import Http
from reprobuild.adapters.fetch.index import PackageIndex, pip_access
from reprobuild.adapters.fetch.pipconfig import PipConfig, read_pip_config
from reprobuild.adapters.fetch.settings import FetchSettings


class Places:
    """Configurations and the downloaders that obey them."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        pip: PipConfig | None = None,
        apt: AptConfig | None = None,
    ) -> None:
        self.settings = settings
        self._given_pip = pip
        self._given_apt = apt
        self._lock = threading.RLock()

    @cached_property
    def pip(self) -> PipConfig:
        """The pip configuration that was given, or the user's."""
        with self._lock:
            return self._given_pip or read_pip_config()

    @cached_property
    def apt(self) -> AptConfig:
        """The apt configuration that was given, or the host's."""
        with self._lock:
            return self._given_apt or read_apt_config()

    @cached_property
    def plain(self) -> Downloader:
        """For URLs and registries."""
        return Downloader(Http(self.settings))

    @cached_property
    def debs(self) -> Downloader:
        """With apt's proxies, authorities and credentials."""
        return Downloader(Http(self.settings, self.apt.access))

    @cached_property
    def wheels(self) -> Downloader:
        """With pip's proxy, authorities and credentials."""
        return Downloader(Http(self.settings, pip_access(self.pip)))

    @cached_property
    def index(self) -> PackageIndex:
        """The user's package indexes, each project asked for once."""
        with self._lock:
            return PackageIndex(self.settings, self.pip, self.wheels.http)
