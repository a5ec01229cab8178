"""Getting one file from the first place that has it: resumed, bounded, verified.

Nothing reaches a store from here before length and SHA-256 have been checked.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.fetch.http import CHUNK, Http, Stream, TransferError, interrupted
from reprobuild.adapters.fetch.pace import Pace, Progress
from reprobuild.adapters.fetch.partial import disk_error, ensure, exclusive, open_partial, share
from reprobuild.adapters.fetch.redact import redact
from reprobuild.adapters.fetch.wanted import Place, Wanted, mismatch, unreachable
from reprobuild.core.digest import Hasher, Sha256
from reprobuild.ports import Reporter

# Bytes of another content that are read to name its digest (a bound, not a promise).
_SURPLUS = 64 * 2**20


class _WrongContent(Exception):
    """What came is not what was wanted: its digest ("" when it was not read to the end), size."""

    def __init__(self, digest: str, size: int, place: Place) -> None:
        super().__init__(digest)
        self.digest = digest
        self.size = size
        self.place = place


class Downloader:
    """Downloads through one `Http`."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self.settings = http.settings

    @contextmanager
    def obtain(
        self, wanted: Wanted, places: Sequence[Place], report: Reporter, *, keep: bool = False
    ) -> Iterator[Path]:
        """The whole, verified file, locked against other processes for the `with` block.

        It is removed at the end unless `keep` or the block raised; a cut download stays, to be
        resumed by the next call. Raises E-FETCH-MISMATCH when a place gave other content and none
        the right one, E-OFFLINE when the network would be needed, E-FETCH otherwise.
        """
        directory = self.settings.partial_dir
        ensure(directory)
        path = directory / wanted.sha256.hex
        with exclusive(directory / f"{wanted.sha256.hex}.lock", self.settings):
            self._complete(path, wanted, places, report)
            yield path
            if not keep:
                path.unlink(missing_ok=True)

    def _complete(
        self, path: Path, wanted: Wanted, places: Sequence[Place], report: Reporter
    ) -> None:
        progress = Progress(report, wanted.name)
        if self._is_whole(path, wanted):
            return
        failures: list[tuple[Place, TransferError]] = []
        wrong: _WrongContent | None = None
        for place in places:
            try:
                self._from_place(path, wanted, place, progress)
                return
            except TransferError as error:
                failures.append((place, error))
            except _WrongContent as error:
                path.unlink(missing_ok=True)
                place_shown = redact(error.place.url)
                report.emit("note", text=f"{wanted.name}: {place_shown} gave other content")
                wrong = wrong or error
        if path.exists() and path.stat().st_size == 0:
            path.unlink()
        if wrong is not None:
            raise mismatch(wanted, wrong.digest, wrong.size, wrong.place.url)
        raise unreachable(wanted.name, failures)

    def _is_whole(self, path: Path, wanted: Wanted) -> bool:
        """Whether an earlier run left all of it; a file that is too long is removed."""
        if not path.exists() and not path.is_symlink():
            return False
        with open_partial(path) as handle:
            size = os.fstat(handle.fileno()).st_size
            if size == 0 or (0 <= size < wanted.size):
                return False
            if wanted.size in (-1, size) and _hash(handle).hexdigest() == wanted.sha256.hex:
                return True
            if wanted.size == -1:
                return False  # perhaps only cut: the server will tell
        path.unlink()
        return False

    def _from_place(self, path: Path, wanted: Wanted, place: Place, progress: Progress) -> None:
        """One place, with retries; each goes on where the last was cut."""
        attempt, validator = 1, ""
        while True:
            resumed = False
            try:
                with open_partial(path) as handle:
                    hasher = _hash(handle)
                    offset = handle.tell()
                    stream = self.http.open(
                        place.url,
                        offset=offset,
                        validator=validator,
                        authorization=place.authorization,
                    )
                    try:
                        resumed = stream.start > 0
                        validator = _etag(stream) or validator
                        if stream.start != offset:
                            handle.seek(0)
                            handle.truncate()
                            hasher = hashlib.sha256()
                        self._copy(stream, handle, hasher, wanted, place, progress=progress)
                    finally:
                        stream.close()
                return
            except _WrongContent:
                # A partial file that something else had spoilt: once more from the first byte.
                path.unlink(missing_ok=True)
                if not resumed:
                    raise
            except TransferError as error:
                if error.status == 416 and path.exists() and path.stat().st_size > 0:
                    path.unlink()
                    continue
                if not error.transient or attempt == self.settings.attempts:
                    raise
                self.http.pause(attempt, place.url, error)
                attempt += 1
            except OSError as error:
                raise disk_error(error, self.settings.partial_dir) from None

    def _copy(
        self,
        stream: Stream,
        handle: BinaryIO,
        hasher: Hasher,
        wanted: Wanted,
        place: Place,
        *,
        progress: Progress,
    ) -> None:
        done, pace = stream.start, Pace(self.settings)
        sized = wanted.size >= 0
        limit = wanted.size if sized else self.settings.max_size
        # Content of another size is not kept, but read a little further, so that the error can
        # name its digest.
        bound = limit + _SURPLUS if sized else limit
        other = sized and stream.total >= 0 and stream.total != wanted.size
        if stream.total > bound:
            raise _WrongContent("", stream.total, place)
        for piece in stream.chunks:
            if self.settings.cancel.is_set():
                raise interrupted()
            done += len(piece)
            pace.take(len(piece))
            other = other or done > limit
            if done > bound:
                raise _WrongContent("", done, place)
            hasher.update(piece)
            if not other:
                handle.write(piece)
                progress.at(done, wanted.size if sized else stream.total)
        handle.flush()
        if done < wanted.size and not other and not stream.framed:
            raise TransferError(f"cut off after {done} of {wanted.size} bytes", transient=True)
        if other or hasher.hexdigest() != wanted.sha256.hex:
            raise _WrongContent(f"sha256:{hasher.hexdigest()}", done, place)

    def obtain_unknown(
        self, name: str, places: Sequence[Place], report: Reporter
    ) -> tuple[Sha256, int]:
        """Downloads what nothing is known of; returns its digest and size in bytes.

        The file stays in the directory of partial downloads, so that the fetch that follows
        needs no second download. Raises E-FETCH or E-OFFLINE.
        """
        directory = self.settings.partial_dir
        ensure(directory)
        failures: list[tuple[Place, TransferError]] = []
        for place in places:
            try:
                return self.http.retrying(place.url, partial(self._unknown, name, place, report))
            except TransferError as error:
                failures.append((place, error))
        raise unreachable(name, failures)

    def _unknown(self, name: str, place: Place, report: Reporter) -> tuple[Sha256, int]:
        directory = self.settings.partial_dir
        progress, hasher, done = Progress(report, name), hashlib.sha256(), 0
        descriptor, temporary = tempfile.mkstemp(prefix="new-", dir=directory)
        try:
            with os.fdopen(descriptor, "wb") as handle:
                share(handle.fileno(), directory)
                stream = self.http.open(place.url, authorization=place.authorization)
                pace = Pace(self.settings)
                try:
                    for piece in stream.chunks:
                        if self.settings.cancel.is_set():
                            raise interrupted()
                        done += len(piece)
                        pace.take(len(piece))
                        if done > self.settings.max_size:
                            raise TransferError(f"more than {self.settings.max_size} bytes came")
                        hasher.update(piece)
                        handle.write(piece)
                        progress.at(done, stream.total)
                finally:
                    stream.close()
            digest = Sha256(hasher.hexdigest())
            with exclusive(directory / f"{digest.hex}.lock", self.settings):
                Path(temporary).replace(directory / digest.hex)
            return digest, done
        except OSError as error:
            raise disk_error(error, directory) from None
        finally:
            with suppress(FileNotFoundError):
                Path(temporary).unlink()


def _hash(handle: BinaryIO) -> Hasher:
    """Hashes the whole file; the handle is left at its end."""
    hasher = hashlib.sha256()
    handle.seek(0)
    while piece := handle.read(CHUNK):
        hasher.update(piece)
    return hasher


def _etag(stream: Stream) -> str:
    tag = stream.headers.get("ETag", "")
    return tag if tag.startswith('"') else ""  # a weak one says nothing about bytes
