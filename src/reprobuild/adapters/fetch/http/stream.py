"""Open bodies: of an HTTP answer or a local file, with where they start and how long they are."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
import urllib3

from reprobuild.adapters.fetch.http.errors import TransferError, explain, status_error

CHUNK = 64 * 1024  # what a connection that goes silent can cost
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")


@dataclass(frozen=True, slots=True)
class Stream:
    """An open body.

    `start` is the offset its first byte has; `total` the whole size, or -1. `framed` says that
    the end of `chunks` is the end of the content, and not perhaps of the connection.
    """

    url: str
    start: int
    total: int
    content_type: str
    headers: Mapping[str, str]
    chunks: Iterator[bytes]
    close: Callable[[], None]
    framed: bool = True


def file_path(url: str) -> Path:
    """The path that a file: URL names; raises TransferError for one on another host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise TransferError("the address cannot be used") from None
    if parts.netloc not in ("", "localhost"):
        raise TransferError("a file: address on another host cannot be read")
    path = unquote(parts.path)
    if "\0" in path or not path.startswith("/"):
        raise TransferError("not an absolute path")
    return Path(path)


def open_file(url: str, offset: int) -> Stream:
    """A local file from byte `offset` on (from 0 where it is shorter)."""
    path = file_path(url)
    try:
        # O_NONBLOCK: a FIFO put there must not hang the open; it is refused right after.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        raise TransferError(error.strerror or "cannot be read", missing=missing) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise TransferError("is no regular file", missing=stat.S_ISDIR(status.st_mode))
    handle = os.fdopen(descriptor, "rb")
    start = offset if offset <= status.st_size else 0
    handle.seek(start)

    def chunks() -> Iterator[bytes]:
        try:
            while piece := handle.read(CHUNK):
                yield piece
        except OSError as error:
            raise TransferError(error.strerror or "cannot be read") from None

    kind = "text/html" if path.suffix in (".html", ".htm") else "application/octet-stream"
    return Stream(url, start, status.st_size, kind, {}, chunks(), handle.close)


def as_stream(response: requests.Response, offset: int) -> Stream:
    """An answer's body; anything but 200, or 206 at `offset`, raises TransferError."""
    start, total = 0, -1
    length = response.headers.get("Content-Length", "")
    if response.status_code == 206:
        match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != offset:
            raise TransferError("answered with another range than was asked for", transient=True)
        start = offset
        total = -1 if match[3] == "*" else int(match[3])
    elif response.status_code == 200:
        total = int(length) if length.isdecimal() else -1
    else:
        raise status_error(response)

    def chunks() -> Iterator[bytes]:
        got = start
        try:
            # The body as sent: a server that labels a .tar.gz as gzip-encoded must not unpack it.
            # Each piece as it comes: one that trickles would otherwise fill a CHUNK unobserved.
            while piece := response.raw.read1(CHUNK, decode_content=False):
                got += len(piece)
                yield piece
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise explain(error) from None
        if 0 <= got < total:
            raise TransferError(f"cut off after {got} of {total} bytes", transient=True)

    return Stream(
        response.url,
        start,
        total,
        response.headers.get("Content-Type", ""),
        response.headers,
        chunks(),
        response.close,
        total >= 0 or "chunked" in response.headers.get("Transfer-Encoding", "").lower(),
    )


def read_all(stream: Stream, limit: int, pace: Callable[[int], None] = lambda size: None) -> bytes:
    """The whole body; more than `limit` bytes raise TransferError. `pace` is told of each piece."""
    parts, size = [], 0
    for piece in stream.chunks:
        size += len(piece)
        pace(len(piece))
        if size > limit:
            raise TransferError(f"more than {limit} bytes came")
        parts.append(piece)
    return b"".join(parts)
