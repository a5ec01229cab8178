"""A Debian archive's index: which packages a suite holds, proven by its signature.

InRelease is verified with gpgv; it names the Packages files by SHA-256, and those name the
packages. Sources of the formats: the Debian repository format page of the Debian wiki,
deb-control(5). `debian` (python-debian) parses stanzas and compares versions here.
"""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from reprobuild.adapters.fetch.aptsources import AptConfig, Archive
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.gpgv import verified_text
from reprobuild.adapters.fetch.http import TransferError
from reprobuild.adapters.fetch.redact import redact
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.core.digest import Sha256
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter

_RELEASE_LIMIT = 32 * 2**20
_PACKAGES_LIMIT = 2**30
_NAME_LINE = re.compile(rb"^Package: (\S+)$", re.MULTILINE)
_SAFE_LOCATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:/%@=-]*\Z")


@dataclass(frozen=True, slots=True)
class DebPackage:
    """One stanza of a Packages file; `size` in bytes, `location` below the archive's root."""

    name: str
    version: str
    location: str
    size: int
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class Release:
    """A verified InRelease: `files` maps a path below the suite to its digest and size."""

    archive: Archive
    suite: str
    files: Mapping[str, tuple[Sha256, int]]
    by_hash: bool


class DebIndex:
    """Reads one archive's index."""

    def __init__(self, downloads: Downloader, config: AptConfig) -> None:
        self._downloads = downloads
        self._http = downloads.http
        self._mirrors = downloads.settings.mirrors
        self._config = config

    def release(self, archive: Archive, suite: str) -> Release:
        """The verified index of `suite`; TransferError where the archive does not have it.

        Raises E-DEB-UNTRUSTED for a signature that does not hold, an index of another suite, or
        one that has expired.
        """
        url = f"{archive.root}/dists/{suite}/InRelease"
        page, failure = None, TransferError("nothing was tried")
        for candidate in self._mirrors.candidates(url):
            try:
                page = self._http.read(candidate, limit=_RELEASE_LIMIT)
                break
            except TransferError as error:
                failure = error
        if page is None:
            raise failure
        keyrings = archive.keyrings or self._config.keyrings
        text = verified_text(page.body, keyrings, url, archive.fingerprints)
        return _read_release(archive, suite, text, url)

    def packages(
        self, release: Release, component: str, architecture: str, report: Reporter
    ) -> bytes:
        """The text of one Packages file, verified and unpacked. Raises as `Downloader.obtain`."""
        stem = f"{component}/binary-{architecture}/Packages"
        for suffix in (".xz", ".gz", ""):
            if stem + suffix in release.files:
                return self._packages(release, stem, suffix, report)
        raise ReprobuildError(
            "E-DEB-GONE",
            f"{redact(release.archive.root)} has no {component} for {architecture} "
            f"in {release.suite}",
            hint="name a component and an architecture that the archive has",
        )

    def _packages(self, release: Release, stem: str, suffix: str, report: Reporter) -> bytes:
        sha256, size = release.files[stem + suffix]
        limit = min(release.files.get(stem, (sha256, _PACKAGES_LIMIT))[1], _PACKAGES_LIMIT)
        base = f"{release.archive.root}/dists/{release.suite}"
        urls = [f"{base}/{stem}{suffix}"]
        if release.by_hash:  # stays right while the archive is being updated
            urls.insert(0, f"{base}/{stem.rpartition('/')[0]}/by-hash/SHA256/{sha256.hex}")
        places = [Place(c) for url in urls for c in self._mirrors.candidates(url)]
        wanted = Wanted(f"{release.suite} {stem}{suffix}", sha256, size)
        with self._downloads.obtain(wanted, places, report, keep=True) as path:
            return _unpack(path.read_bytes(), suffix, limit)


def _read_release(archive: Archive, suite: str, text: str, url: str) -> Release:
    from debian.deb822 import Deb822

    fields: Mapping[str, str] = Deb822(text.splitlines(keepends=True))
    names = {fields.get("Suite", ""), fields.get("Codename", "")}
    # A security or updates suite may be called stable/updates while its codename says it all.
    if suite not in names:
        raise ReprobuildError(
            "E-DEB-UNTRUSTED",
            f"{redact(url)} is the index of {' / '.join(sorted(names - {''})) or 'no suite'}, "
            f"not of {suite}",
            hint="the archive or a mirror gives one suite for another; name the suite as it does",
            origin=redact(url),
        )
    expiry = fields.get("Valid-Until", "")
    if expiry and not archive.frozen and _past(expiry):
        raise ReprobuildError(
            "E-DEB-UNTRUSTED",
            f"{redact(url)} expired on {expiry[:40]}: the archive is stale, or this clock is off",
            hint="use a current archive; a frozen one may be named as `debian` under [mirrors]",
            origin=redact(url),
        )
    files: dict[str, tuple[Sha256, int]] = {}
    for line in fields.get("SHA256", "").splitlines():
        words = line.split()
        if len(words) == 3 and words[1].isdecimal():
            files[words[2]] = (Sha256.parse(words[0]), int(words[1]))
    return Release(archive, suite, files, fields.get("Acquire-By-Hash", "").lower() == "yes")


def _past(text: str) -> bool:
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return True
    return (when if when.tzinfo else when.replace(tzinfo=UTC)) < datetime.now(UTC)


def _unpack(data: bytes, suffix: str, limit: int) -> bytes:
    """At most `limit` bytes; the digest vouches for the packed form, not for its expansion."""
    try:
        if suffix == ".xz":
            unpacker = lzma.LZMADecompressor(memlimit=256 * 2**20)
            out = unpacker.decompress(data, limit)
            whole = unpacker.eof
        elif suffix == ".gz":
            import io

            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                out = packed.read(limit)
                whole = not packed.read(1)
        else:
            out, whole = data, len(data) <= limit
    except (lzma.LZMAError, OSError, EOFError) as error:
        raise ReprobuildError("E-FETCH", f"a Packages file cannot be unpacked: {error}") from None
    if not whole:
        raise ReprobuildError("E-FETCH", "a Packages file is longer than its archive declares")
    return out


def select(texts: Iterable[bytes], names: Sequence[str]) -> dict[str, list[DebPackage]]:
    """Every version of each wanted name, oldest first; names that are absent map to nothing."""
    from debian.debian_support import Version

    wanted = {name.encode(): name for name in names}
    found: dict[str, list[DebPackage]] = {name: [] for name in names}
    for text in texts:
        for match in _NAME_LINE.finditer(text):
            if match[1] in wanted:
                found[wanted[match[1]]].append(_stanza(text, match.start()))
    for packages in found.values():
        packages.sort(key=lambda package: Version(package.version))
    return found


def all_names(texts: Iterable[bytes]) -> list[str]:
    """Every package name, for suggestions."""
    return sorted({m[1].decode("utf-8", "replace") for t in texts for m in _NAME_LINE.finditer(t)})


def _stanza(text: bytes, start: int) -> DebPackage:
    from debian.deb822 import Deb822

    # "Package" is not always the first field of its stanza.
    begin = text.rfind(b"\n\n", 0, start)
    end = text.find(b"\n\n", start)
    lines = text[begin + 2 if begin >= 0 else 0 : end if end >= 0 else len(text)]
    fields: Mapping[str, str] = Deb822(lines)
    try:
        location, size = fields["Filename"].removeprefix("./"), int(fields["Size"])
        package = DebPackage(
            fields["Package"], fields["Version"], location, size, Sha256.parse(fields["SHA256"])
        )
    except (KeyError, ValueError) as error:
        raise ReprobuildError("E-FETCH", f"a Packages file has a broken entry: {error}") from None
    check_location(package.location)
    return package


def check_location(location: str) -> str:
    """`location` itself where it is a plain path below an archive's root; raises E-LOCK."""
    if not _SAFE_LOCATION.match(location) or {"..", ".", ""} & set(location.split("/")):
        raise ReprobuildError(
            "E-LOCK", f"{location[:200]!r} is no path below an archive's root", got=location[:200]
        )
    return location
