"""A binary cache of plain files: below a directory, or behind any web server that serves one.

reprobuild-cache      "reprobuild cache 0" and a newline
drvs/ab/<drv>.json    what a recipe came out as (core/bundle/cacheentry.py), signed
bundles/ab/<name>     bundles with the trees, by the digest of their closure
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import Http, TransferError
from reprobuild.adapters.fetch.redact import redact
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.adapters.places import is_stream
from reprobuild.adapters.regular import open_regular, read_regular
from reprobuild.adapters.substituter.absent import Absences
from reprobuild.adapters.substituter.patience import impatient, prompt
from reprobuild.core.bundle.cacheentry import CacheEntry, bundle_path, entry_path, parse_entry
from reprobuild.core.bundle.signedrecord import MAX_SIZE
from reprobuild.core.bundle.signing import Signer
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter

MARK, MARK_TEXT = "reprobuild-cache", b"reprobuild cache 0\n"


def base_url(text: str) -> str:
    """A cache's address as a URL; raises E-USAGE for a scheme that is none of ours."""
    if text.startswith(("https://", "http://", "file:///")):
        return text.rstrip("/")
    if "://" in text:
        raise ReprobuildError(
            "E-USAGE", f"{redact(text)} is no binary cache: say https://…, oci://…, or a directory"
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
        self._http = Http(impatient(settings))
        self._report = report
        self._absent = None if self._base.startswith("file:") else Absences(memory, self._base)
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
        if self._absent is not None and self._absent.knows(drv):
            return None
        self._check_mark()
        try:
            with prompt(self.name):
                page = self._http.read(f"{self._base}/{entry_path(drv)}", limit=MAX_SIZE)
        except TransferError as error:
            if not error.missing:
                raise self._failure(error) from None
            if self._absent is not None:
                self._absent.learn(drv)
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


class CacheDirectory:
    """Writes a cache. Files appear whole; the entry comes after its bundle."""

    def __init__(self, address: str) -> None:
        if "://" in address and not address.startswith("file:///"):
            raise ReprobuildError(
                "E-USAGE",
                f"cannot push to {redact(address)}",
                hint="push to oci://REGISTRY/REPOSITORY, or to a directory that is served",
            )
        self.path = Path(address.removeprefix("file://")).absolute()
        self.name = str(self.path)
        try:
            there = self._mark()
            for name in ("drvs", "bundles"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            if there is None:
                _write(self.path / MARK, MARK_TEXT)
        except OSError as error:
            raise self._failure(error) from error

    def _mark(self) -> bytes | None:
        """The file that says what the directory is, None where there is none; raises E-BUNDLE."""
        path = self.path / MARK
        try:
            text = read_regular(path, len(MARK_TEXT) + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReprobuildError(
                "E-BUNDLE",
                f"{path}, which says that a directory is a cache, cannot be read: {error.strerror}",
                file=str(path),
            ) from error
        if text != MARK_TEXT:
            raise ReprobuildError("E-BUNDLE", f"{self.path} is a cache of another format")
        return text

    def _failure(self, error: OSError) -> ReprobuildError:
        where = error.filename if isinstance(error.filename, str) else self.path
        return ReprobuildError(
            "E-WRITE", f"cannot write to the cache {self.path}: {where}: {error.strerror}"
        )

    def has(self, record: Record, key: bytes) -> bool:
        """Whether it says the same of the recipe already, signed by `key`, and has the bundle."""
        try:
            there = parse_entry(read_regular(self.path / entry_path(record.drv), MAX_SIZE + 1))
        except (OSError, ReprobuildError):
            return False
        return there.says(record, key) and (self.path / bundle_path(there.name)).is_file()

    def put(
        self, record: Record, name: str, write: Callable[[Path], object], signer: Signer
    ) -> None:
        """Puts a record there; `write` makes the bundle, called `name`, unless it is there."""
        bundle = self.path / bundle_path(name)
        path = self.path / entry_path(record.drv)
        try:
            bundle.parent.mkdir(parents=True, exist_ok=True)
            if not bundle.exists():
                write(bundle)
                bundle.chmod(0o644)
            entry = CacheEntry(record, name, *file_sha256(bundle)).signed(signer)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, entry.encode())
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Holds nothing open."""


def _write(path: Path, data: bytes) -> None:
    """A small file that a web server may read, whole or not at all; raises OSError."""
    from reprobuild.adapters.git.files import replace_file

    if is_stream(path):
        raise OSError(errno.EEXIST, "something that is no regular file stands there", str(path))
    replace_file(path, data)
    path.chmod(0o644)


def file_sha256(path: Path) -> tuple[Sha256, int]:
    """A file's SHA-256, and its size in bytes; raises OSError, also for what is no file."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Sha256(digest), os.fstat(file.fileno()).st_size
