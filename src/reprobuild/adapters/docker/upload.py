"""One blob into a repository: mounted, resumed, or sent in pieces (OCI distribution 1.1, "Push").

A cut upload goes on where the registry says it stands, in this run or a later one; a lost session
begins anew. The blob is hashed on the way, and only named when it is what it is called.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO
from urllib.parse import urlencode, urlsplit

from reprobuild.adapters.docker.memory import PushMemory
from reprobuild.adapters.docker.repository import ATTEMPTS, Repository
from reprobuild.adapters.fetch.http.errors import TransferError
from reprobuild.adapters.oci.layout import LayoutFiles
from reprobuild.errors import ReprobuildError

PIECE = 8 * 2**20
"""Bytes of one request; what a cut costs at most."""

SESSIONS = 3
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)\Z")
_BINARY = {"Content-Type": "application/octet-stream"}


class Upload:
    """Sends blobs; `memory` keeps sessions and where blobs are known to be."""

    def __init__(self, repository: Repository, memory: PushMemory, *, piece: int = PIECE) -> None:
        self._repository = repository
        self._memory = memory
        self._piece = piece
        self._uploads = f"{repository.base}/blobs/uploads/"

    def send(self, files: LayoutFiles, name: str, digest: str, size: int) -> str:
        """Makes sure that the blob is there: "present", "mounted" or "uploaded".

        Raises TransferError, and E-IMAGE-VERIFY when the layout's blob is not `digest`.
        """
        repository = self._repository
        if repository.retrying(lambda: self._has(digest)):
            return "present"
        place = ""
        for source in self._memory.sources(digest, repository.target, repository.sources):
            with suppress(TransferError):
                place = repository.retrying(lambda s=source: self._mount(digest, s))  # type: ignore[misc]
                if not place:
                    return "mounted"
        for session in range(SESSIONS):
            try:
                self._whole(files, name, digest, size, place)
                return "uploaded"
            except TransferError as error:
                # 404: the registry knows the session no more. 400: what an earlier run left in it
                # is not the beginning of this blob.
                resumed = bool(self._memory.session(repository.target, digest))
                lost = error.status == 404 or (error.status == 400 and resumed)
                if not lost or session == SESSIONS - 1:
                    raise
                self._memory.forget_session(repository.target, digest)
                place = ""
        raise AssertionError("there is a last session")

    def _has(self, digest: str) -> bool:
        url = f"{self._repository.base}/blobs/{digest}"
        return self._repository.ask("HEAD", url, (200, 404)).status_code == 200

    def _mount(self, digest: str, source: str) -> str:
        """Empty when the blob was mounted, else the session that was begun instead."""
        query = urlencode({"mount": digest, "from": source})
        answer = self._repository.ask("POST", f"{self._uploads}?{query}", (201, 202))
        return "" if answer.status_code == 201 else self._repository.place(answer, self._uploads)

    def _begin(self) -> str:
        answer = self._repository.ask(
            "POST", self._uploads, (202,), headers={"Content-Length": "0"}
        )
        return self._repository.place(answer, self._uploads)

    def _resumed(self, digest: str, size: int) -> tuple[str, int]:
        """An earlier run's session and how much it has; ("", 0) when there is none."""
        place = self._memory.session(self._repository.target, digest)
        if place:
            with suppress(TransferError):
                place, offset = self._stands(place)
                if 0 < offset <= size:
                    return place, offset
        return "", 0

    def _stands(self, place: str) -> tuple[str, int]:
        """Where a session goes on, and at which byte; raises TransferError."""
        answer = self._repository.ask("GET", place, (204, 202, 200))
        match = _RANGE.match(answer.headers.get("Range", ""))
        # "0-0" is said of nothing, too.
        offset = int(match[1]) + 1 if match and match[1] != "0" else 0
        there = self._repository.place(answer, place) if answer.headers.get("Location") else place
        return there, offset

    def _whole(self, files: LayoutFiles, name: str, digest: str, size: int, place: str) -> None:
        repository = self._repository
        offset = 0
        if not place:
            place, offset = self._resumed(digest, size)
        place = place or repository.retrying(self._begin)
        with files.open(name) as source:
            blob = _Hashed(source, digest, size)
            if size > self._piece:
                while offset < size:
                    self._memory.keep_session(repository.target, digest, place)
                    place, offset = self._step(blob, place, offset)
                body, headers = b"", {"Content-Length": "0"}
            else:
                body, headers = blob.read(0, size), dict(_BINARY)
            blob.check()
        joined = f"{place}{'&' if urlsplit(place).query else '?'}{urlencode({'digest': digest})}"
        answer = repository.retrying(
            lambda: repository.ask("PUT", joined, (201,), headers=headers, body=body)
        )
        said = answer.headers.get("Docker-Content-Digest", digest)
        if said != digest:
            raise TransferError(f"it took the blob {digest} for {said[:80]!r}")
        self._memory.forget_session(repository.target, digest)

    def _step(self, blob: _Hashed, place: str, offset: int) -> tuple[str, int]:
        """Sends one piece; after a cut, goes on where the registry says it stands."""
        repository = self._repository
        for attempt in range(ATTEMPTS):
            body = blob.read(offset, self._piece)
            headers = {**_BINARY, "Content-Range": f"{offset}-{offset + len(body) - 1}"}
            try:
                answer = repository.ask("PATCH", place, (202, 204), headers=headers, body=body)
            except TransferError as error:
                wrong_range = error.status == 416
                if attempt == ATTEMPTS - 1 or not (error.transient or wrong_range):
                    raise
                repository.pause(attempt, error)
                place, offset = repository.retrying(_asking(self._stands, place))
                continue
            match = _RANGE.match(answer.headers.get("Range", ""))
            done = offset + len(body)
            if match and int(match[1]) + 1 < done:
                done = int(match[1]) + 1
            there = repository.place(answer, place) if answer.headers.get("Location") else place
            return there, done
        raise AssertionError("there is a last attempt")


def _asking(ask: Callable[[str], tuple[str, int]], place: str) -> Callable[[], tuple[str, int]]:
    return lambda: ask(place)


class _Hashed:
    """A blob read at any offset, hashed from its beginning once."""

    def __init__(self, source: BinaryIO, digest: str, size: int) -> None:
        self._source = source
        self._digest = digest
        self._size = size
        self._hasher = hashlib.sha256()
        self._hashed = 0

    def read(self, offset: int, count: int) -> bytes:
        """At most `count` bytes at `offset`."""
        while self._hashed < offset:  # what an earlier run sent is hashed here as well
            self._source.seek(self._hashed)
            self._take(self._source.read(min(PIECE, offset - self._hashed)))
        self._source.seek(offset)
        data = self._source.read(count)
        if offset <= self._hashed < offset + len(data):
            self._take(data[self._hashed - offset :])
        return data

    def _take(self, data: bytes) -> None:
        if not data:
            raise self._damaged()
        self._hasher.update(data)
        self._hashed += len(data)

    def check(self) -> None:
        """Hashes what was not sent here, too; raises E-IMAGE-VERIFY unless all is as called."""
        self.read(self._size, 0)
        if self._hashed != self._size or f"sha256:{self._hasher.hexdigest()}" != self._digest:
            raise self._damaged()

    def _damaged(self) -> ReprobuildError:
        return ReprobuildError("E-IMAGE-VERIFY", f"the blob {self._digest} of the image is damaged")
