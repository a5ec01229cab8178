"""Images in a directory (OCI image layout 1.0) or in a tar file of one."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.filetree import HashingReader
from reprobuild.adapters.fetch.http import CHUNK, TransferError
from reprobuild.adapters.fetch.partial import disk_error, ensure
from reprobuild.adapters.fetch.registry import MANIFEST_LIMIT
from reprobuild.adapters.fetch.wanted import Place, Wanted, mismatch
from reprobuild.adapters.regular import open_regular
from reprobuild.core.digest import Sha256
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Reporter

REF_NAME = "org.opencontainers.image.ref.name"


def _from_index(index: bytes, tag: str) -> str:
    """The digest that index.json has under the tag, or of its only image."""
    try:
        entries = json.loads(index)["manifests"]
        named = {
            entry["digest"]: (entry.get("annotations") or {}).get(REF_NAME, "") for entry in entries
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise TransferError("its index.json is no image index") from None
    fitting = [digest for digest, name in named.items() if tag in ("", name)]
    if len(fitting) == 1:
        return str(fitting[0])
    have = ", ".join(sorted(str(n)[:60] for n in named.values() if n)) or "no tags"
    raise TransferError(
        f"it holds {len(fitting)} images that fit {tag or 'an empty tag'!r} ({have})", missing=True
    )


class LayoutSource:
    """A directory, as an `ImageSource`."""

    def __init__(self, downloads: Downloader, path: Path) -> None:
        self._downloads = downloads
        self._url = path.absolute().as_uri()

    def manifest(self, reference: str) -> bytes:
        """The manifest or index of a tag (or "") or digest, unverified; raises TransferError."""
        read = self._downloads.http.read
        if not reference.startswith("sha256:"):
            index = read(f"{self._url}/index.json", limit=MANIFEST_LIMIT).body
            reference = _from_index(index, reference)
        return read(self._blob(_sha256(reference)), limit=MANIFEST_LIMIT).body

    def _blob(self, digest: Sha256) -> str:
        return f"{self._url}/blobs/sha256/{digest.hex}"

    @contextmanager
    def blob(self, wanted: Wanted, report: Reporter) -> Iterator[Path]:
        """The verified blob as a file, for the `with` block. Raises as `Downloader.obtain`."""
        place = Place(self._blob(wanted.sha256))
        with self._downloads.obtain(wanted, [place], report) as path:
            yield path


class ArchiveSource:
    """A tar file of a layout, as an `ImageSource`; nothing is unpacked but the blobs asked for."""

    def __init__(self, downloads: Downloader, path: Path) -> None:
        self._directory = downloads.settings.partial_dir
        self._path = path

    @contextmanager
    def _member(self, name: str) -> Iterator[tuple[HashingReader, int]]:
        try:
            with open_regular(self._path) as file, tarfile.open(fileobj=file) as archive:
                for info in archive:
                    if info.isreg() and info.name.removeprefix("./") == name:
                        inner = archive.extractfile(info)
                        assert inner is not None
                        yield HashingReader(inner), info.size  # type: ignore[arg-type]
                        return
        except tarfile.TarError as error:
            raise TransferError(f"is no readable tar file ({type(error).__name__})") from None
        except OSError as error:
            raise TransferError(error.strerror or "cannot be read") from None
        raise TransferError(f"has no {name}", missing=True)

    def manifest(self, reference: str) -> bytes:
        """As `LayoutSource.manifest`."""
        if not reference.startswith("sha256:"):
            reference = _from_index(self._small("index.json"), reference)
        return self._small(f"blobs/sha256/{_sha256(reference).hex}")

    def _small(self, name: str) -> bytes:
        with self._member(name) as (reader, size):
            if size > MANIFEST_LIMIT:
                raise TransferError(f"its {name} has more than {MANIFEST_LIMIT} bytes")
            return reader.read()

    @contextmanager
    def blob(self, wanted: Wanted, report: Reporter) -> Iterator[Path]:
        """The verified blob as a file, for the `with` block; raises E-FETCH(-MISMATCH)."""
        ensure(self._directory)
        with tempfile.NamedTemporaryFile(prefix="blob-", dir=self._directory) as copy:
            path = Path(copy.name)
            try:
                self._copy(path, wanted)
            except TransferError as error:
                raise ReprobuildError(
                    "E-FETCH", f"{wanted.name}: {self._path} {error.reason}", name=wanted.name
                ) from None
            yield path

    def _copy(self, path: Path, wanted: Wanted) -> None:
        hasher = hashlib.sha256()
        member = self._member(f"blobs/sha256/{wanted.sha256.hex}")
        with member as (reader, size), path.open("wb") as out:
            while piece := reader.read(CHUNK):
                hasher.update(piece)
                try:
                    out.write(piece)
                    out.flush()
                except OSError as error:
                    raise disk_error(error, self._directory) from None
        if hasher.hexdigest() != wanted.sha256.hex or wanted.size not in (-1, size):
            got = f"sha256:{hasher.hexdigest()}"
            raise mismatch(wanted, got, size, self._path.absolute().as_uri())


def _sha256(text: str) -> Sha256:
    with suppress(ReprobuildError):
        return Sha256.parse(text)
    raise TransferError(f"it names {text[:80]!r}, which is no sha256 digest")
