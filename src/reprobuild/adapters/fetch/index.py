"""Package indexes (PEP 503 and 691) and directories of wheels, as the user's pip sees them.

Pages are read by `pypi_simple`, here alone.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from reprobuild.adapters.fetch.http import Access, Http, Page, TransferError, file_path, origin_of
from reprobuild.adapters.fetch.pipconfig import PipConfig, local_path
from reprobuild.adapters.fetch.redact import redact, split_credentials
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wheeltags import parse_filename
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class Offer:
    """One file that a place has. `sha256` is empty and `size` -1 where the place is silent."""

    filename: str
    url: str
    sha256: str = ""
    size: int = -1
    requires_python: str = ""
    yanked: bool = False


@dataclass(frozen=True, slots=True)
class Offers:
    """What was found, in the order of the places, and what places could not be asked."""

    found: tuple[Offer, ...]
    failures: tuple[tuple[str, TransferError], ...] = field(default=())


def pip_access(config: PipConfig) -> Access:
    """How pip would reach the hosts of its configuration."""
    credentials = {}
    for url in (*config.indexes, *config.find_links):
        with suppress(ValueError):  # asking a URL that is none says so later
            bare, pair = split_credentials(url)
            if pair is not None:
                credentials[origin_of(bare)] = pair
    return Access(
        verify=config.cert or True,
        client_cert=config.client_cert,
        proxies={"http": config.proxy, "https": config.proxy} if config.proxy else {},
        trusted_hosts=frozenset(config.trusted_hosts),
        credentials=credentials,
    )


class PackageIndex:
    """All places together; each project is asked for once."""

    def __init__(self, settings: FetchSettings, config: PipConfig, http: Http) -> None:
        self._settings = settings
        self._config = config
        self._http = http
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._known: dict[str, Offers] = {}

    def offers(self, name: str) -> Offers:
        """Every wheel and sdist of the project: `wheels` mirrors, then find-links, then indexes.

        Places that do not have the project are passed over; those that cannot be asked are in
        `failures`. Raises nothing.
        """
        project = canonicalize_name(name)
        with self._locks[project]:
            if project not in self._known:
                self._known[project] = self._ask(project)
            return self._known[project]

    def _ask(self, project: str) -> Offers:
        found: list[Offer] = []
        failures: list[tuple[str, TransferError]] = []
        for place in (*self._settings.mirrors.wheels, *self._config.find_links):
            try:
                found += self._links(place, project)
            except TransferError as error:
                failures.append((place, error))
        for index in self._config.indexes:
            try:
                found += self._project(index, project)
            except TransferError as error:
                failures.append((index, error))
        return Offers(tuple(found), tuple(failures))

    def _links(self, place: str, project: str) -> Iterator[Offer]:
        path = local_path(place)
        if path is None and place.startswith("file:"):
            path = file_path(place)
        if path is not None and path.is_dir():
            return _directory(path, project)
        url = path.absolute().as_uri() if path is not None else place
        return self._page(url, project)

    def _project(self, index: str, project: str) -> Iterator[Offer]:
        path = local_path(index)
        base = (path.absolute().as_uri() if path is not None else index).rstrip("/")
        if base.startswith("file:"):  # as pip does: a directory stands for its index.html
            return self._page(f"{base}/{project}/index.html", project)
        return self._page(f"{base}/{project}/", project)

    def _page(self, url: str, project: str) -> Iterator[Offer]:
        import pypi_simple

        failure: TransferError | None = None
        for candidate in self._settings.mirrors.candidates(url):
            try:
                page = self._http.read(candidate, headers={"Accept": pypi_simple.ACCEPT_ANY})
            except TransferError as error:
                if failure is None or not error.missing:
                    failure = error
                continue
            return _parse(page, project, self._settings)
        assert failure is not None
        if failure.missing:
            return iter(())
        raise failure


def _directory(path: Path, project: str) -> Iterator[Offer]:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise TransferError(error.strerror or "cannot be read") from None
    for name in names:
        parsed = parse_filename(name)
        if parsed is not None and parsed.name == project:
            yield Offer(name, (path.absolute() / name).as_uri())


def _parse(page: Page, project: str, settings: FetchSettings) -> Iterator[Offer]:
    import pypi_simple

    kind = page.content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/vnd.pypi.simple.v1+json":
            parsed = pypi_simple.ProjectPage.from_json_data(json.loads(page.body), page.url)
        elif kind in ("", "text/html", "application/vnd.pypi.simple.v1+html"):
            parsed = pypi_simple.ProjectPage.from_html(project, page.body, page.url)
        else:
            raise TransferError(f"answered with {kind[:60]}, which is no package index")
    except (ValueError, RecursionError, pypi_simple.UnsupportedRepoVersionError) as error:
        raise TransferError(f"gave no readable index page ({type(error).__name__})") from None
    local = page.url.startswith("file:")
    for package in parsed.packages:
        name = parse_filename(package.filename)
        if name is None or name.name != project:
            continue
        try:
            scheme = urlsplit(package.url).scheme
        except ValueError:
            continue
        if scheme not in ("http", "https") and not (scheme == "file" and local):
            continue  # a page from the network may not point at this machine's files
        yield Offer(
            package.filename,
            package.url,
            _hex(package.digests.get("sha256", "")),
            _size(package.size, package.url),
            package.requires_python or "",
            package.is_yanked,
        )


def _hex(text: str) -> str:
    text = text.lower()
    return text if len(text) == 64 and set(text) <= set("0123456789abcdef") else ""


def _size(declared: int | None, url: str) -> int:
    if declared is not None and declared >= 0:
        return declared
    if url.startswith("file:"):
        try:
            return file_path(url).stat().st_size
        except (TransferError, OSError):
            return -1
    return -1


def nothing_offered(what: str, offers: Offers, versions: Sequence[str]) -> ReprobuildError:
    """The error for a file that no place has: E-OFFLINE, E-FETCH or E-PACKAGE-MISSING."""
    tried = [f"{redact(place)}: {error.reason}" for place, error in offers.failures]
    if any(error.offline for _, error in offers.failures):
        return ReprobuildError(
            "E-OFFLINE", f"{what} is not here, and the network is off", name=what, tried=tried
        )
    if tried:
        return ReprobuildError(
            "E-FETCH",
            f"{what} was not found, and not every index could be asked: " + "; ".join(tried),
            name=what,
            tried=tried,
        )
    listed = ", ".join(versions[-10:])
    return ReprobuildError(
        "E-PACKAGE-MISSING",
        f"no index or directory offers {what}" + (f"; there are {listed}" if versions else ""),
        name=what,
        available=list(versions),
    )
