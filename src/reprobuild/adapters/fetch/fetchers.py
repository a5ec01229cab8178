"""`ports.Fetcher` for every kind of origin that is not a git repository."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore, Fetcher, Reporter

if TYPE_CHECKING:
    from reprobuild.adapters.fetch.places import Places


class Fetchers:
    """Hands each pin to the fetcher of its origin's kind."""

    def __init__(self, by_kind: Mapping[str, Fetcher]) -> None:
        self._by_kind = dict(by_kind)

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `ports.Fetcher`; an origin of unknown kind raises E-LOCK."""
        kind = origin.get("kind")
        fetcher = self._by_kind.get(kind) if isinstance(kind, str) else None
        if fetcher is None:
            raise ReprobuildError(
                "E-LOCK",
                f"a pin has the origin kind {str(kind)[:60]!r}, which cannot be fetched",
                expected=", ".join(sorted(self._by_kind)),
            )
        try:
            return fetcher.fetch(fixed, origin, report)
        except ReprobuildError as error:
            name = origin.get("input")
            if isinstance(name, str) and name:
                error.facts.setdefault("input", name)
                error.hint = error.hint.replace("--update INPUT", f"--update {name}")
            raise


class Lazy:
    """Makes the real fetcher, with its libraries, at the first fetch."""

    def __init__(self, make: Callable[[], Fetcher]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: Fetcher | None = None

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """As `ports.Fetcher`."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return self._made.fetch(fixed, origin, report)


def file_fetchers(
    content: ContentStore,
    settings: FetchSettings,
    *,
    base: Path,
    places: Callable[[], Places] | None = None,
) -> dict[str, Fetcher]:
    """The fetchers for wheel, sdist, deb, url, oci and path origins, by kind.

    `base` is where relative paths start (the flake's directory); `places` may give other
    configurations than the user's pip and the host's apt.
    """
    lock = threading.Lock()
    made: list[Places] = []

    def shared() -> Places:
        from reprobuild.adapters.fetch.places import Places

        with lock:
            if not made:
                made.append(places() if places is not None else Places(settings))
            return made[0]

    def wheel() -> Fetcher:
        from reprobuild.adapters.fetch.wheels import WheelFetcher

        here = shared()
        return WheelFetcher(settings, here.index, here.wheels, content)

    def deb() -> Fetcher:
        from reprobuild.adapters.fetch.debs import DebFetcher

        here = shared()
        return DebFetcher(here.debs, here.apt, content)

    def url() -> Fetcher:
        from reprobuild.adapters.fetch.urls import UrlFetcher

        return UrlFetcher(shared().plain, content)

    def path() -> Fetcher:
        from reprobuild.adapters.fetch.paths import PathFetcher

        return PathFetcher(content, base)

    def oci() -> Fetcher:
        from reprobuild.adapters.fetch.oci import OciFetcher

        return OciFetcher(shared().plain, content, base)

    wheels = Lazy(wheel)
    return {
        "wheel": wheels,
        "sdist": wheels,
        "deb": Lazy(deb),
        "url": Lazy(url),
        "path": Lazy(path),
        "oci": Lazy(oci),
    }
