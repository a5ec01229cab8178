"""What `lock` asks: given a request, the pin. The only code here that chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.pins import FilePin
from reprobuild.ports import ContentStore, NullReporter, Reporter

if TYPE_CHECKING:
    from reprobuild.adapters.fetch.places import Places


class Discovery:
    """One object for a run of `lock`: the user's pip, the host's apt and each index are asked once.

    Every method raises E-OFFLINE when the network would be needed and is off, and E-FETCH when a
    place could not be asked.
    """

    def __init__(
        self,
        settings: FetchSettings,
        *,
        report: Reporter | None = None,
        places: Callable[[], Places] | None = None,
    ) -> None:
        self._settings = settings
        self._report: Reporter = report or NullReporter()
        self._make = places
        self._made: Places | None = None

    def _places(self) -> Places:
        if self._made is None:
            from reprobuild.adapters.fetch.places import Places

            self._made = self._make() if self._make is not None else Places(self._settings)
        return self._made

    def wheel(
        self,
        name: str,
        version: str,
        *,
        python: str = "3.11",
        glibc: int = 36,
        machine: str = "x86_64",
    ) -> FilePin:
        """The wheel of exactly that version that suits CPython `python` on glibc 2.`glibc` best.

        The answer depends on these and on what the indexes offer, not on the running interpreter.
        Raises E-PACKAGE-MISSING naming the versions or wheels there are.
        """
        from reprobuild.adapters.fetch.wheels import WheelDiscovery
        from reprobuild.adapters.fetch.wheeltags import Target

        here = self._places()
        found = WheelDiscovery(self._settings, here.index, here.wheels)
        return found.wheel(name, version, Target(python, glibc, machine), self._report)

    def sdist(self, name: str, version: str) -> FilePin:
        """The source archive of exactly that version. Raises E-PACKAGE-MISSING."""
        from reprobuild.adapters.fetch.wheels import WheelDiscovery

        here = self._places()
        found = WheelDiscovery(self._settings, here.index, here.wheels)
        return found.sdist(name, version, self._report)

    def debs(
        self,
        suite: str,
        architecture: str,
        components: Sequence[str],
        packages: Sequence[str],
    ) -> list[FilePin]:
        """A pin for each `name` (newest in `suite`) or `name=version`, in that order.

        Raises E-DEB-GONE naming the versions there are, E-DEB-UNTRUSTED.
        """
        from reprobuild.adapters.fetch.debs import DebDiscovery

        here = self._places()
        found = DebDiscovery(here.debs, here.apt)
        return found.packages(suite, architecture, components, packages, self._report)

    def url(self, url: str) -> FilePin:
        """Downloads `url` and pins what came; the file is kept for the fetch that follows."""
        from reprobuild.adapters.fetch.urls import discover_url

        return discover_url(self._places().plain, url, self._report)

    def oci(self, reference: str, base: Path) -> Sha256:
        """The digest of the linux/amd64 manifest of `registry/repository:tag` (or `@sha256:…`),
        `oci:PATH[:tag]` or `oci-archive:PATH[:tag]`. Raises E-OCI-REFERENCE.
        """
        from reprobuild.adapters.fetch.oci import discover_image

        return discover_image(self._places().plain, reference, base, self._report)

    def path(self, path: str, content: ContentStore, base: Path) -> Digest:
        """Stores the directory `path` (relative ones start at `base`) and returns its tree."""
        from reprobuild.adapters.fetch.paths import PathFetcher

        return PathFetcher(content, base).capture(path)
