"""Wheels and sdists: pinning them out of the user's index, and fetching what is pinned.

Nothing is ever asked for its metadata and nothing is run: an sdist's setup.py runs in the
sandbox or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.filetree import promised_file, size_of, store_file, text
from reprobuild.adapters.fetch.index import Offer, Offers, PackageIndex, nothing_offered
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Place, Wanted, mismatch
from reprobuild.adapters.fetch.wheeltags import Target, parse_filename
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.pins import FilePin
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Reporter


class WheelDiscovery:
    """Turns a name and a version into a pin."""

    def __init__(self, settings: FetchSettings, index: PackageIndex, downloads: Downloader) -> None:
        self._settings = settings
        self._index = index
        self._downloads = downloads

    def wheel(self, name: str, version: str, target: Target, report: Reporter) -> FilePin:
        """The wheel that suits `target` best; ties go to the higher build tag, then the file name.

        The version must match whole: 2.0 is not 2.0+cpu. Raises E-PACKAGE-MISSING naming what
        there is, E-FETCH, E-OFFLINE.
        """
        wanted = _version(name, version)
        offers = self._index.offers(name)
        _complete(f"a wheel of {name} {version}", offers)
        ranked: list[tuple[int, tuple[int, str], Offer]] = []
        unfit: list[str] = []
        versions: set[Version] = set()
        for offer in offers.found:
            parsed = parse_filename(offer.filename)
            if parsed is None or parsed.tags is None:
                continue
            versions.add(parsed.version)
            if parsed.version != wanted:
                continue
            rank = target.rank(parsed.tags)
            if rank is None or not _runs_on(offer.requires_python, target.python):
                unfit.append(offer.filename)
                continue
            ranked.append((rank, parsed.build or (-1, ""), offer))
        if not ranked:
            self._refuse_wheel(name, version, unfit, versions, target)
        rank = min(item[0] for item in ranked)
        build = max(item[1] for item in ranked if item[0] == rank)
        best = min(o.filename for r, b, o in ranked if (r, b) == (rank, build))
        return self._pin(name, version, _same_file(best, [o for _, _, o in ranked]), report)

    def _refuse_wheel(
        self, name: str, version: str, unfit: list[str], versions: set[Version], target: Target
    ) -> None:
        if unfit:
            raise ReprobuildError(
                "E-PACKAGE-MISSING",
                f"no wheel of {name} {version} runs on CPython {target.python} with glibc "
                f"2.{target.glibc} on {target.machine}; there are {', '.join(sorted(unfit)[:8])}",
                name=name,
                available=sorted(unfit),
            )
        names = [str(v) for v in sorted(versions)]
        raise nothing_offered(f"a wheel of {name} {version}", self._index.offers(name), names)

    def sdist(self, name: str, version: str, report: Reporter) -> FilePin:
        """The source archive (`.tar.gz` before `.zip`); raises as `wheel` does."""
        wanted = _version(name, version)
        offers = self._index.offers(name)
        _complete(f"an sdist of {name} {version}", offers)
        found: list[Offer] = []
        versions: set[Version] = set()
        for offer in offers.found:
            parsed = parse_filename(offer.filename)
            if parsed is not None and parsed.tags is None:
                versions.add(parsed.version)
                if parsed.version == wanted:
                    found.append(offer)
        if not found:
            names = [str(v) for v in sorted(versions)]
            raise nothing_offered(f"an sdist of {name} {version}", offers, names)
        best = min(found, key=lambda o: (not o.filename.endswith(".tar.gz"), o.filename))
        return self._pin(name, version, _same_file(best.filename, found), report)

    def _pin(self, name: str, version: str, same: Sequence[Offer], report: Reporter) -> FilePin:
        """A pin out of the offers of one file name, the first place deciding what it holds."""
        first = same[0]
        if first.yanked:
            report.emit("note", text=f"{first.filename} was yanked by its publishers")
        if first.sha256 and first.size >= 0:
            sha256, size = Sha256(first.sha256), first.size
        else:
            places = _places(self._settings, [first])
            if first.sha256:
                wanted = Wanted(first.filename, Sha256(first.sha256), first.size)
                with self._downloads.obtain(wanted, places, report, keep=True) as path:
                    sha256, size = wanted.sha256, path.stat().st_size
            else:
                sha256, size = self._downloads.obtain_unknown(first.filename, places, report)
        return FilePin(canonicalize_name(name), version, first.filename, size, sha256)


class WheelFetcher:
    """Fetches pinned wheels and sdists: found again by name and file name, taken by sha256."""

    def __init__(
        self,
        settings: FetchSettings,
        index: PackageIndex,
        downloads: Downloader,
        content: ContentStore,
    ) -> None:
        self._settings = settings
        self._index = index
        self._downloads = downloads
        self._content = content

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `ports.Fetcher`."""
        filename, sha256 = promised_file(fixed)
        name = text(origin, "name")
        wanted = Wanted(filename, sha256, size_of(origin))
        offers = self._index.offers(name)
        same = [offer for offer in offers.found if offer.filename == filename]
        agreeing = [offer for offer in same if offer.sha256 == sha256.hex]
        silent = [offer for offer in same if not offer.sha256]
        if same and not agreeing and not silent:
            raise mismatch(wanted, f"sha256:{same[0].sha256}", same[0].size, same[0].url)
        # What an earlier discovery left complete needs no place at all.
        places = _places(self._settings, [*agreeing, *silent])
        if not places and not (self._settings.partial_dir / sha256.hex).exists():
            raise nothing_offered(filename, offers, sorted({o.filename for o in offers.found}))
        with self._downloads.obtain(wanted, places, report) as path:
            return store_file(self._content, path, fixed)


def _complete(what: str, offers: Offers) -> None:
    """A choice made while one index is silent could be another one tomorrow: refused."""
    if offers.failures:
        raise nothing_offered(what, offers, [])


def _places(settings: FetchSettings, offers: Sequence[Offer]) -> list[Place]:
    urls = [url for offer in offers for url in settings.mirrors.candidates(offer.url)]
    return [Place(url) for url in dict.fromkeys(urls)]


def _same_file(filename: str, offers: Sequence[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer.filename == filename]


def _version(name: str, version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        raise ReprobuildError(
            "E-PACKAGE-MISSING",
            f"{version[:60]!r} is no version that {name} could have",
            hint="give the exact version, such as 1.2.3",
            name=name,
        ) from None


def _runs_on(requires: str, python: str) -> bool:
    """Whether Requires-Python admits some patch release of `python`."""
    try:
        allowed = SpecifierSet(requires)
    except InvalidSpecifier:
        return True  # as pip: what cannot be read excludes nothing
    return any(allowed.contains(f"{python}.{patch}", prereleases=True) for patch in (0, 15, 99))
