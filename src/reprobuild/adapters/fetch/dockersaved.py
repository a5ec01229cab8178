"""Images of a Docker daemon, or in a file that `docker save` wrote.

Neither has a manifest of the registry's. The one that is made here is a function of config and
layers alone, so it pins the image: the layers as they were saved, named by their own digests.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import CHUNK, TransferError
from reprobuild.adapters.fetch.partial import disk_error, ensure
from reprobuild.adapters.fetch.registry import MANIFEST_LIMIT
from reprobuild.adapters.fetch.wanted import Wanted, mismatch
from reprobuild.adapters.regular import open_regular
from reprobuild.core.encoding import Value, encode
from reprobuild.core.image import CONFIG, LAYER, LAYER_GZIP, LAYER_ZSTD, MANIFEST
from reprobuild.ports import Reporter

Open = Callable[[], AbstractContextManager[Path]]
MAX_LINKS = 8
_MAGIC = {b"\x1f\x8b": LAYER_GZIP, b"\x28\xb5": LAYER_ZSTD}


@contextmanager
def daemon_archive(downloads: Downloader, image: str) -> Iterator[Path]:
    """The daemon's image as a file, for the `with` block; raises E-DOCKER…, E-IMAGE."""
    from reprobuild.adapters.docker.sink import DockerSink

    ensure(downloads.settings.partial_dir)
    with tempfile.TemporaryDirectory(dir=downloads.settings.partial_dir) as folder:
        path = Path(folder) / "image.tar"
        DockerSink().export(image, path)
        yield path


class SavedSource:
    """An archive of `docker save`, as an `ImageSource`; `tag` chooses where it has several images.

    `open_archive` gives the file; it is asked once, and the file kept while this object lives.
    """

    def __init__(self, downloads: Downloader, open_archive: Open, tag: str = "") -> None:
        self._directory = downloads.settings.partial_dir
        self._tag = tag
        self._context = open_archive()
        self._path: Path | None = None

    def __del__(self) -> None:
        if getattr(self, "_path", None) is not None:
            self._context.__exit__(None, None, None)

    def _archive(self) -> Path:
        if self._path is None:
            self._path = self._context.__enter__()
        return self._path

    @contextmanager
    def _member(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        try:
            with (
                open_regular(self._archive()) as file,
                tarfile.open(fileobj=file, mode="r:") as archive,
            ):
                info = archive.getmember(name)
                for _ in range(MAX_LINKS):  # twins of a layer are links in old archives
                    if not info.issym() and not info.islnk():
                        break
                    target = info.linkname
                    if info.issym():
                        folder = info.name.rpartition("/")[0]
                        target = posixpath.normpath(f"/{folder}/{target}").lstrip("/")
                    info = archive.getmember(target)
                inner = archive.extractfile(info)
                if inner is None:
                    raise TransferError(f"its {name[:80]} is no file")
                yield cast("BinaryIO", inner), info.size
        except KeyError:
            raise TransferError(f"has no {name[:80]}", missing=True) from None
        except (tarfile.TarError, EOFError, RecursionError) as error:
            raise TransferError(f"is no readable tar file ({type(error).__name__})") from None
        except OSError as error:
            raise TransferError(error.strerror or "cannot be read") from None

    def _small(self, name: str) -> bytes:
        with self._member(name) as (reader, size):
            if size > MANIFEST_LIMIT:
                raise TransferError(f"its {name[:80]} has more than {MANIFEST_LIMIT} bytes")
            return reader.read()

    @cached_property
    def _found(self) -> tuple[bytes, dict[str, str]]:
        """The manifest made for it, and the member that holds each blob."""
        try:
            entries = json.loads(self._small("manifest.json"))
            fitting = [
                e
                for e in entries
                if not self._tag
                or any(str(t).endswith(f":{self._tag}") for t in e.get("RepoTags") or ())
            ]
            if len(fitting) != 1:
                raise TransferError(f"it holds {len(fitting)} images that fit", missing=True)
            config_name = str(fitting[0]["Config"])
            layer_names = [str(name) for name in fitting[0]["Layers"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise TransferError("its manifest.json is off") from None
        config = self._small(config_name)
        names = {f"sha256:{hashlib.sha256(config).hexdigest()}": config_name}
        layers: list[Value] = []
        for name in layer_names:
            with self._member(name) as (reader, size):
                first = reader.read(CHUNK)
                hasher = hashlib.sha256(first)
                while piece := reader.read(CHUNK):
                    hasher.update(piece)
            digest = f"sha256:{hasher.hexdigest()}"
            names[digest] = name
            media_type = _MAGIC.get(first[:2], LAYER)
            layers.append({"digest": digest, "mediaType": media_type, "size": size})
        described: dict[str, Value] = {
            "digest": next(iter(names)),
            "mediaType": CONFIG,
            "size": len(config),
        }
        manifest: dict[str, Value] = {
            "config": described,
            "layers": layers,
            "mediaType": MANIFEST,
            "schemaVersion": 2,
        }
        return encode(manifest), names

    def manifest(self, reference: str) -> bytes:
        """The manifest made for the image, whatever it is asked by; raises TransferError."""
        return self._found[0]

    @contextmanager
    def blob(self, wanted: Wanted, report: Reporter) -> Iterator[Path]:
        """The verified blob as a file, for the `with` block; raises E-FETCH-MISMATCH."""
        digest = str(wanted.sha256)
        name = self._found[1].get(digest)
        if name is None:
            raise mismatch(wanted, "", -1, self._archive().absolute().as_uri())
        ensure(self._directory)
        with tempfile.NamedTemporaryFile(prefix="blob-", dir=self._directory) as copy:
            hasher = hashlib.sha256()
            with self._member(name) as (reader, size):
                while piece := reader.read(CHUNK):
                    hasher.update(piece)
                    try:
                        copy.write(piece)
                        copy.flush()
                    except OSError as error:
                        raise disk_error(error, self._directory) from None
            if hasher.hexdigest() != wanted.sha256.hex:
                got = f"sha256:{hasher.hexdigest()}"
                raise mismatch(wanted, got, size, self._archive().absolute().as_uri())
            yield Path(copy.name)
