"""Files at a URL."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.filetree import promised_file, size_of, store_file, text
from reprobuild.adapters.fetch.redact import redact
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.pins import FilePin
from reprobuild.core.tree import check_name
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Reporter


def filename_of(url: str) -> str:
    """The last component of the URL's path, decoded; raises E-FETCH where there is none."""
    try:
        name = unquote(urlsplit(url).path).rpartition("/")[2]
        check_name(name.encode())
        if not name.isprintable():
            raise ReprobuildError("E-TREE", "a file name with control characters")
    except (ReprobuildError, ValueError):
        raise ReprobuildError(
            "E-FETCH",
            f"{redact(url)} does not end in a file name",
            hint="use a URL whose path ends in the name the file should have",
        ) from None
    return name


def discover_url(downloads: Downloader, url: str, report: Reporter) -> FilePin:
    """Downloads `url` once and pins what came. Raises E-FETCH, E-OFFLINE."""
    name = filename_of(url)
    places = [Place(candidate) for candidate in downloads.settings.mirrors.candidates(url)]
    sha256, size = downloads.obtain_unknown(name, places, report)
    return FilePin(name, "", name, size, sha256, url)


class UrlFetcher:
    """Fetches a pinned file from its URL or a mirror of it."""

    def __init__(self, downloads: Downloader, content: ContentStore) -> None:
        self._downloads = downloads
        self._content = content

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `ports.Fetcher`."""
        filename, sha256 = promised_file(fixed)
        candidates = self._downloads.settings.mirrors.candidates(text(origin, "url"))
        wanted = Wanted(filename, sha256, size_of(origin))
        with self._downloads.obtain(wanted, [Place(c) for c in candidates], report) as path:
            return store_file(self._content, path, fixed)
