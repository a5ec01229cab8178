"""A binary cache of plain files: below a directory, or behind any web server that serves one.

reprobuild-cache      "reprobuild cache 0" and a newline
drvs/ab/<drv>.json    what a recipe came out as (core/bundle/cacheentry.py), signed
bundles/ab/<name>     bundles with the trees, by the digest of their closure
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import Http, TransferError
from reprobuild.adapters.fetch.redact import redact
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.core.bundle.cacheentry import (
    MAX_SIZE,
    CacheEntry,
    bundle_path,
    entry_path,
    parse_entry,
)
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter

MARK, MARK_TEXT = "reprobuild-cache", b"reprobuild cache 0\n"
FORGET = 3600
"""Seconds for which "not here" is remembered."""

IMPATIENT = {"attempts": 2, "connect_timeout": 5.0, "read_timeout": 15.0}


def base_url(text: str) -> str:
    """A cache's address as a URL; raises E-USAGE for a scheme that is none of ours."""
    if text.startswith(("https://", "http://", "file:///")):
        return text.rstrip("/")
    if "://" in text:
        raise ReprobuildError(
            "E-USAGE", f"{redact(text)} is no binary cache: say https://…, or a directory"
        )
    return Path(text).absolute().as_uri()


class StaticCache:
    """Reads a cache (`engine.substitute.Substituter`)."""

    def __init__(
        self, address: str, settings: FetchSettings, memory: Path, report: Reporter
    ) -> None:
        """`memory` is a directory where negative answers are remembered."""
        self._base = base_url(address)
        self.name = redact(self._base)
        self._http = Http(replace(settings, **IMPATIENT))  # type: ignore[arg-type]
        self._report = report
        known = hashlib.sha256(self._base.encode()).hexdigest()[:16]
        self._absent = memory / known
        self._checked = False

    def _check_mark(self) -> None:
        """That there is a cache at all: else every question would be answered with silence."""
        if self._checked:
            return
        try:
            text = self._http.read(f"{self._base}/{MARK}", limit=1000).body
        except TransferError as error:
            raise self._failure(error) from None
        if text != MARK_TEXT:
            raise ReprobuildError("E-BUNDLE", f"{self.name} is no binary cache of this format")
        self._checked = True

    def _failure(self, error: TransferError) -> ReprobuildError:
        code = "E-OFFLINE" if error.offline else "E-FETCH"
        return ReprobuildError(code, f"{self.name} does not answer: {error}")

    def entry(self, drv: Digest) -> CacheEntry | None:
        """Its word on a recipe; "none" is remembered for a while."""
        note = self._absent / drv.hex
        remembers = not self._base.startswith("file:")
        if remembers and _fresh(note):
            return None
        self._check_mark()
        try:
            page = self._http.read(f"{self._base}/{entry_path(drv)}", limit=MAX_SIZE)
        except TransferError as error:
            if not error.missing:
                raise self._failure(error) from None
            if remembers:
                self._absent.mkdir(parents=True, exist_ok=True)
                note.touch()
            return None
        return parse_entry(page.body)

    @contextmanager
    def bundle(self, entry: CacheEntry) -> Iterator[BundleReader]:
        """The bundle of an entry."""
        place = Place(f"{self._base}/{bundle_path(entry.name)}")
        wanted = Wanted(entry.record.name, entry.sha256, entry.size)
        with (
            Downloader(self._http).obtain(wanted, [place], self._report) as path,
            BundleReader(path) as reader,
        ):
            yield reader


def _fresh(note: Path) -> bool:
    try:
        return 0 <= time.time() - note.stat().st_mtime < FORGET
    except OSError:
        return False


class CacheDirectory:
    """Writes a cache. Files appear whole; the entry comes after its bundle."""

    def __init__(self, address: str) -> None:
        if "://" in address and not address.startswith("file:///"):
            raise ReprobuildError(
                "E-USAGE",
                f"cannot push to {redact(address)}",
                hint="push to a directory, and let any web server serve it",
            )
        self.path = Path(address.removeprefix("file://")).absolute()
        try:
            for name in ("drvs", "bundles"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            mark = self.path / MARK
            if not mark.exists():
                mark.write_bytes(MARK_TEXT)
        except OSError as error:
            raise self._failure(error) from error
        if mark.read_bytes() != MARK_TEXT:
            raise ReprobuildError("E-BUNDLE", f"{self.path} is a cache of another format")

    def _failure(self, error: OSError) -> ReprobuildError:
        return ReprobuildError("E-WRITE", f"cannot write to {self.path}: {error.strerror}")

    def bundle(self, name: str) -> Path:
        """Where a bundle of that name goes, its directory made."""
        path = self.path / bundle_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def has(self, drv: Digest, data_of: CacheEntry) -> bool:
        """Whether the same entry, with its bundle, is there already."""
        try:
            there = parse_entry((self.path / entry_path(drv)).read_bytes())
        except (OSError, ReprobuildError):
            return False
        return (
            there.record.outputs == data_of.record.outputs
            and {s.key for s in data_of.signatures} <= {s.key for s in there.signatures}
            and self.bundle(there.name).exists()
        )

    def put(self, entry: CacheEntry) -> None:
        """Writes an entry; its bundle is there."""
        from reprobuild.adapters.git.files import replace_file

        path = self.path / entry_path(entry.record.drv)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, entry.encode())
            path.chmod(0o644)
        except OSError as error:
            raise self._failure(error) from error


def file_sha256(path: Path) -> tuple[str, int]:
    """(SHA-256 in hex digits, size) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size
