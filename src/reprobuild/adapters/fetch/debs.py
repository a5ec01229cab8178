"""Debian packages: pinning them out of a verified archive index, and fetching what is pinned."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from reprobuild.adapters.fetch.aptsources import AptConfig, archives_for
from reprobuild.adapters.fetch.debindex import (
    DebIndex,
    DebPackage,
    all_names,
    check_location,
    select,
)
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.filetree import promised_file, size_of, store_file, text
from reprobuild.adapters.fetch.http import TransferError
from reprobuild.adapters.fetch.wanted import Place, Wanted, unreachable
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.pins import FilePin
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, NullReporter, Reporter


class DebDiscovery:
    """Turns package names into pins."""

    def __init__(self, downloads: Downloader, config: AptConfig) -> None:
        self._settings = downloads.settings
        self._config = config
        self._index = DebIndex(downloads, config)

    def packages(
        self,
        suite: str,
        architecture: str,
        components: Sequence[str],
        wanted: Sequence[str],
        report: Reporter,
    ) -> list[FilePin]:
        """A pin for each `name` (its newest version) or `name=version`, in the order asked for.

        Only `suite` itself is looked at: not its updates or security suite. Raises E-DEB-GONE
        naming the versions or similar names there are, E-DEB-UNTRUSTED, E-FETCH, E-OFFLINE.
        """
        texts = self._texts(suite, architecture, components, report)
        names = [request.partition("=")[0] for request in wanted]
        found = select(texts, names)
        pins = []
        for request in wanted:
            name, _, version = request.partition("=")
            package = _choose(found[name], version)
            if package is None:
                raise _gone(suite, architecture, request, found[name], texts)
            pins.append(
                FilePin(
                    package.name,
                    package.version,
                    package.location.rpartition("/")[2],
                    package.size,
                    package.sha256,
                    package.location,
                )
            )
        return pins

    def versions(self, suite: str, architecture: str, name: str) -> list[str]:
        """The versions of a package in the suite's main component, oldest first."""
        texts = self._texts(suite, architecture, ("main",), NullReporter())
        return [package.version for package in select(texts, [name])[name]]

    def _texts(
        self, suite: str, architecture: str, components: Sequence[str], report: Reporter
    ) -> list[bytes]:
        """The Packages files of the first archive that has the suite."""
        failures: list[tuple[Place, TransferError]] = []
        for archive in archives_for(suite, self._settings.mirrors, self._config):
            try:
                release = self._index.release(archive, suite)
            except TransferError as error:
                failures.append((Place(archive.root), error))
                continue
            return [
                self._index.packages(release, component, architecture, report)
                for component in components
            ]
        raise _no_archive(suite, failures)


def _choose(packages: Sequence[DebPackage], version: str) -> DebPackage | None:
    """The newest, or the one of exactly that version."""
    fitting = [p for p in packages if version in ("", p.version)]
    return fitting[-1] if fitting else None


def _no_archive(suite: str, failures: list[tuple[Place, TransferError]]) -> ReprobuildError:
    if failures:
        return unreachable(f"the index of {suite}", failures)
    return ReprobuildError(
        "E-FETCH",
        f"no Debian archive is configured that could hold {suite}",
        hint='add it to the host\'s apt sources, or write debian = "https://…" under [mirrors]',
        name=suite,
    )


def _gone(
    suite: str,
    architecture: str,
    request: str,
    packages: Sequence[DebPackage],
    texts: Sequence[bytes],
) -> ReprobuildError:
    name, _, version = request.partition("=")
    if packages:
        there = [package.version for package in packages]
        return ReprobuildError(
            "E-DEB-GONE",
            f"{suite} has no {name} {version} for {architecture}; it has {', '.join(there)}",
            name=name,
            version=version,
            available=there,
        )
    near = difflib.get_close_matches(name, all_names(texts), 3, 0.8)
    return ReprobuildError(
        "E-DEB-GONE",
        f"{suite} has no package {name} for {architecture}"
        + (f"; similar names: {', '.join(near)}" if near else ""),
        hint="name a package of the suite, or another component",
        name=name,
        available=near,
    )


class DebFetcher:
    """Fetches pinned packages from the archives that may hold the suite, by sha256."""

    def __init__(self, downloads: Downloader, config: AptConfig, content: ContentStore) -> None:
        self._settings = downloads.settings
        self._downloads = downloads
        self._config = config
        self._content = content

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `ports.Fetcher`; a package that every archive has dropped raises E-DEB-GONE."""
        filename, sha256 = promised_file(fixed)
        location = check_location(text(origin, "location"))
        archives = archives_for(text(origin, "suite"), self._settings.mirrors, self._config)
        candidates = self._settings.mirrors.candidates
        urls = [url for a in archives for url in candidates(f"{a.root}/{location}")]
        places = [Place(url) for url in dict.fromkeys(urls)]
        try:
            with self._downloads.obtain(
                Wanted(filename, sha256, size_of(origin)), places, report
            ) as path:
                return store_file(self._content, path, fixed)
        except ReprobuildError as error:
            raise self._explain(error, origin) from None

    def _explain(self, error: ReprobuildError, origin: Mapping[str, Value]) -> ReprobuildError:
        """E-DEB-GONE, with the versions there are, where an archive said that it has it no more."""
        if error.code != "E-FETCH" or error.facts.get("gone") is not True:
            return error
        suite, name = text(origin, "suite"), text(origin, "name")
        try:
            discovery = DebDiscovery(self._downloads, self._config)
            there = discovery.versions(suite, text(origin, "architecture"), name)
        except (ReprobuildError, TransferError):
            there = []
        return ReprobuildError(
            "E-DEB-GONE",
            f"{name} {origin.get('version', '')} is no longer in the archive of {suite}"
            + (f", which has {', '.join(there)}" if there else ""),
            name=name,
            available=there,
            tried=error.facts["tried"],
        )
