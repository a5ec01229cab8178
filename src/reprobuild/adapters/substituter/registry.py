"""A binary cache in one repository of an OCI registry: `oci://HOST[:PORT]/REPOSITORY`.

tag `reprobuild-cache`   an artifact that says which format this is
tag `drv-<64 digits>`    an artifact for each recipe: its config is the signed entry
                         (core/bundle/cacheentry.py), its only layer the bundle with the trees

An artifact is an OCI image manifest with an `artifactType` (image specification 1.1, "Guidelines
for Artifact Usage"); the config's descriptor carries the entry itself in `data`, so that a question
takes one request. A bundle that several recipes share is there once. Logins are docker's.
"""

from __future__ import annotations

import io
import json
import tempfile
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.docker.memory import PushMemory
from reprobuild.adapters.docker.push import put_manifest
from reprobuild.adapters.docker.repository import Repository
from reprobuild.adapters.docker.upload import Upload
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import Http, TransferError
from reprobuild.adapters.fetch.http.session import Access
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.fetch.registry import RegistrySource
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Wanted
from reprobuild.adapters.substituter.absent import Absences
from reprobuild.adapters.substituter.patience import impatient, prompt
from reprobuild.adapters.substituter.static import file_sha256
from reprobuild.core.bundle.cacheentry import CacheEntry, parse_entry
from reprobuild.core.bundle.signedrecord import MAX_SIZE
from reprobuild.core.bundle.signing import Signer
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.image import MANIFEST, sha256_of
from reprobuild.core.record import Record
from reprobuild.core.redact import redact_reference
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter

SCHEME = "oci://"
MARK = "reprobuild-cache"
CACHE_TYPE = "application/vnd.reprobuild.cache.v0"
ENTRY_TYPE = "application/vnd.reprobuild.cache-entry.v0+json"
BUNDLE_TYPE = "application/vnd.reprobuild.bundle.v0"
EMPTY, EMPTY_TYPE = b"{}", "application/vnd.oci.empty.v1+json"


def repository_of(address: str) -> ImageReference:
    """The repository that `oci://HOST[:PORT]/REPOSITORY` names; raises E-USAGE."""
    rest = address.removeprefix(SCHEME).rstrip("/")
    shown = redact_reference(address)
    host = rest.partition("/")[0]
    try:
        found = ImageReference.parse(f"docker://{rest}")
    except ReprobuildError as error:
        raise ReprobuildError("E-USAGE", f"{shown} is no repository: {error.message}") from None
    if found.host != host or found.digest is not None or not rest.endswith(found.repository):
        raise ReprobuildError(
            "E-USAGE",
            f"{shown} is no repository of a registry",
            hint="write oci://HOST[:PORT]/REPOSITORY, without a tag; HOST has a dot or a port",
        )
    return found


def tag_of(drv: Digest) -> str:
    """The tag under which a recipe's entry is."""
    return f"drv-{drv.hex}"


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Value]:
    return {"digest": digest, "mediaType": media_type, "size": size}


def mark_manifest() -> bytes:
    """The artifact that says: this repository is a binary cache of this format."""
    empty = _descriptor(EMPTY_TYPE, str(sha256_of(EMPTY)), len(EMPTY))
    return encode(
        {
            "artifactType": CACHE_TYPE,
            "config": empty,
            "layers": [empty],
            "mediaType": MANIFEST,
            "schemaVersion": 2,
        }
    )


def entry_manifest(entry: CacheEntry) -> bytes:
    """The artifact of an entry and its bundle."""
    text = entry.encode()
    config = _descriptor(ENTRY_TYPE, str(sha256_of(text)), len(text))
    return encode(
        {
            "artifactType": ENTRY_TYPE,
            "config": {**config, "data": b64encode(text).decode()},
            "layers": [_descriptor(BUNDLE_TYPE, str(entry.sha256), entry.size)],
            "mediaType": MANIFEST,
            "schemaVersion": 2,
        }
    )


def parse_entry_manifest(data: bytes) -> CacheEntry:
    """The entry in an artifact; raises E-BUNDLE. Nothing but its signature makes it true."""
    try:
        config = json.loads(data)["config"]
        text = b64decode(config["data"], validate=True)
        if config["mediaType"] != ENTRY_TYPE or len(text) > MAX_SIZE:
            raise ValueError("no entry is in its config")
    except (ValueError, KeyError, TypeError, RecursionError, Base64Error) as error:
        raise ReprobuildError("E-BUNDLE", f"a binary cache's artifact is off: {error}") from error
    return parse_entry(text)


class RegistryCache:
    """Reads a cache (`engine.substitute.Substituter`)."""

    def __init__(
        self, address: str, settings: FetchSettings, memory: Path, report: Reporter
    ) -> None:
        """`memory` is a directory where negative answers are remembered."""
        target = repository_of(address)
        self.name = f"{SCHEME}{target.host}/{target.repository}"
        downloads = Downloader(Http(impatient(settings)))
        self._source = RegistrySource(downloads, target.host, target.repository)
        self._report = report
        self._absent = Absences(memory, self.name)
        self._checked = False

    def _failure(self, error: TransferError) -> ReprobuildError:
        code = "E-OFFLINE" if error.offline else "E-FETCH"
        return ReprobuildError(code, f"{self.name} does not answer: {error}")

    def _check_mark(self) -> None:
        """That there is a cache at all: else every question would be answered with silence."""
        if self._checked:
            return
        try:
            with prompt(self.name):
                data = self._source.manifest(MARK)
        except TransferError as error:
            if error.missing:
                raise ReprobuildError("E-BUNDLE", f"{self.name} is no binary cache") from None
            raise self._failure(error) from None
        if data != mark_manifest():
            raise ReprobuildError("E-BUNDLE", f"{self.name} is no binary cache of this format")
        self._checked = True

    def entry(self, drv: Digest) -> CacheEntry | None:
        """Its word on a recipe; "none" is remembered for a while."""
        if self._absent.knows(drv):
            return None
        self._check_mark()
        try:
            with prompt(self.name):
                return parse_entry_manifest(self._source.manifest(tag_of(drv)))
        except TransferError as error:
            if not error.missing:
                raise self._failure(error) from None
            self._absent.learn(drv)
            return None

    @contextmanager
    def bundle(self, entry: CacheEntry) -> Iterator[BundleReader]:
        """The bundle of an entry."""
        wanted = Wanted(entry.record.name, entry.sha256, entry.size)
        with self._source.blob(wanted, self._report) as path, BundleReader(path) as reader:
            yield reader


class _Files:
    """What is to be sent, by name (`adapters.oci.layout.LayoutFiles`)."""

    def __init__(self, documents: dict[str, bytes], paths: dict[str, Path]) -> None:
        self._documents, self._paths = documents, paths

    def open(self, name: str) -> BinaryIO:
        """A reader."""
        if name in self._documents:
            return io.BytesIO(self._documents[name])
        return self._paths[name].open("rb")

    def size(self, name: str) -> int:
        """In bytes."""
        if name in self._documents:
            return len(self._documents[name])
        return self._paths[name].stat().st_size


class RegistryWriter:
    """Writes a cache. Bundle and entry come before the artifact that names them."""

    def __init__(
        self, address: str, settings: FetchSettings, *, memory: Path, absent: Path, scratch: Path
    ) -> None:
        """`memory` is where pushes keep open uploads, `absent` where negative answers are,
        `scratch` an existing directory for bundles on their way. Raises E-USAGE, E-OFFLINE,
        E-REGISTRY."""
        self._target = repository_of(address)
        self.name = f"{SCHEME}{self._target.host}/{self._target.repository}"
        if settings.offline:
            raise ReprobuildError("E-OFFLINE", f"--offline, and {self.name} is on a network")
        self._scratch = scratch
        self._absent = Absences(absent, self.name)
        self._repository = Repository(self._target, Access(), settings.backoff)
        self._upload = Upload(self._repository, PushMemory(memory))
        try:
            with self._talking():
                self._mark()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except TransferError as error:
            host = self._target.host
            raise ReprobuildError(
                "E-REGISTRY",
                f"{self.name} could not be written: {error.reason}",
                hint=f"run `docker login {host}`" if error.status in (401, 403) else None,
                registry=host,
                status=error.status or None,
            ) from error

    def _manifest(self, tag: str) -> bytes | None:
        url = f"{self._repository.base}/manifests/{tag}"
        answer = self._repository.retrying(
            lambda: self._repository.ask("GET", url, (200, 404), headers={"Accept": MANIFEST})
        )
        return None if answer.status_code == 404 else answer.content

    def _mark(self) -> None:
        there = self._manifest(MARK)
        if there is None:
            self._send(str(sha256_of(EMPTY)), len(EMPTY), _Files({"": EMPTY}, {}))
            put_manifest(self._repository, MARK, mark_manifest())
        elif there != mark_manifest():
            raise ReprobuildError("E-BUNDLE", f"{self.name} is a cache of another format")

    def _send(self, digest: str, size: int, files: _Files) -> None:
        self._upload.send(files, "", digest, size)

    def has(self, record: Record, key: bytes) -> bool:
        """Whether it says the same of the recipe already, signed by `key`."""
        with self._talking():
            data = self._manifest(tag_of(record.drv))
        try:
            return data is not None and parse_entry_manifest(data).says(record, key)
        except ReprobuildError:
            return False

    def put(
        self, record: Record, name: str, write: Callable[[Path], object], signer: Signer
    ) -> None:
        """Puts a record there; `write` makes the bundle, called `name`."""
        with tempfile.TemporaryDirectory(prefix="push-", dir=self._scratch) as folder:
            path = Path(folder) / "bundle"
            write(path)
            sha256, size = file_sha256(path)
            entry = CacheEntry(record, name, sha256, size).signed(signer)
            text = entry.encode()
            with self._talking():
                self._send(str(sha256), size, _Files({}, {"": path}))
                self._send(str(sha256_of(text)), len(text), _Files({"": text}, {}))
                put_manifest(self._repository, tag_of(record.drv), entry_manifest(entry))
        self._absent.forget(record.drv)

    def close(self) -> None:
        """Ends its connections."""
        self._repository.close()
