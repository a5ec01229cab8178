"""One place to open a URL: http, https and file, with the user's credentials and authorities.

`requests` lives in this file. What goes wrong is a `TransferError`, whose reason never holds a
URL, a header or a password, so that it may be shown.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import requests
import requests.adapters
import requests.auth
import urllib3

from reprobuild.adapters.fetch.redact import split_credentials
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.errors import ReprobuildError

T = TypeVar("T")

CHUNK = 64 * 1024  # what a connection that goes silent can cost
PAGE_LIMIT = 128 * 2**20
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_TIMEOUTS = (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
_UNUSABLE = (
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidHeader,
    urllib3.exceptions.LocationParseError,
)
_PROXY = (urllib3.exceptions.ProxyError, requests.exceptions.ProxyError)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")


class TransferError(Exception):
    """Why one attempt at one place failed.

    `transient` invites another attempt at the same place; `missing` says that the place answered
    and does not have it; `offline` that the network would have been needed; `pause` is how many
    seconds the server asked to wait.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool = False,
        missing: bool = False,
        offline: bool = False,
        status: int = 0,
        challenge: str = "",
        pause: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.transient = transient
        self.missing = missing
        self.offline = offline
        self.status = status
        self.challenge = challenge
        self.pause = pause


@dataclass(frozen=True, slots=True)
class Access:
    """How to get at hosts: certificates, proxies, credentials. Nothing here is ever shown.

    `credentials` are by origin (`https://host[:port]`); `verify` is True or a bundle of
    authorities; `trusted_hosts` (`host` or `host:port`) are not asked for a certificate, as the
    user's pip is told to do.
    """

    verify: bool | str = True
    client_cert: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    trusted_hosts: frozenset[str] = frozenset()
    credentials: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """An open body. `start` is the offset its first byte has; `total` the whole size, or -1."""

    url: str
    start: int
    total: int
    content_type: str
    headers: Mapping[str, str]
    chunks: Iterator[bytes]
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Page:
    """A small body, whole. `url` is where redirects ended."""

    url: str
    content_type: str
    headers: Mapping[str, str]
    body: bytes


class _Bearer(requests.auth.AuthBase):
    """Sets one Authorization header; being there, it also keeps netrc from replacing it."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self.value
        return request


class _Session(requests.Session):
    """Decides about certificates for each hop, and refuses to be led from https to http."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self.access = access
        self.max_redirects = 10
        self.proxies.update(access.proxies)
        self.headers["User-Agent"] = "reprobuild"
        self.headers["Accept-Encoding"] = "identity"
        if access.trusted_hosts:  # meant to be unverified: no warning for each request
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        if target is not None:
            scheme = urlsplit(target).scheme.lower()
            if scheme not in ("", "http", "https"):
                raise TransferError(f"redirected to a {scheme[:20]}: address, which is refused")
            if scheme == "http" and (resp.url or "").lower().startswith("https:"):
                raise TransferError("redirected from https to http, which is refused")
        return target

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        parts = urlsplit(request.url or "")
        trusted = {parts.hostname or "", f"{parts.hostname}:{parts.port}"}
        if trusted & self.access.trusted_hosts:
            kwargs["verify"] = False
        elif self.access.verify is not True:
            kwargs["verify"] = self.access.verify
        elif kwargs.get("verify") is False:
            kwargs["verify"] = True
        if self.access.client_cert:
            kwargs["cert"] = self.access.client_cert
        return super().send(request, **kwargs)


class Http:
    """Opens URLs. Safe for several threads; each has its own connections."""

    def __init__(self, settings: FetchSettings, access: Access | None = None) -> None:
        self.settings = settings
        self._access = access or Access()
        self._local = threading.local()

    def _session(self) -> _Session:
        session: _Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = _Session(self._access)
        return session

    def open(
        self,
        url: str,
        *,
        offset: int = 0,
        validator: str = "",
        headers: Mapping[str, str] | None = None,
        authorization: str = "",
    ) -> Stream:
        """Starts reading `url` at byte `offset` where the server can, else at 0 (see `start`).

        `validator` is an ETag: when the content changed since, reading starts at 0. Raises
        TransferError.
        """
        bare, credentials = split_credentials(url)
        scheme = urlsplit(bare).scheme.lower()
        if scheme == "file":
            return _open_file(bare, offset)
        if scheme not in ("http", "https"):
            raise TransferError(f"{scheme[:20] or 'no'}: is no scheme that can be fetched")
        if self.settings.offline:
            raise TransferError("the network is off", offline=True)
        wanted = dict(headers or {})
        if offset:
            wanted["Range"] = f"bytes={offset}-"
            if validator:
                wanted["If-Range"] = validator
        auth: requests.auth.AuthBase | tuple[str, str] | None
        auth = _Bearer(authorization) if authorization else credentials
        if auth is None:
            auth = self._access.credentials.get(origin_of(bare))
        response = self._request("GET", bare, wanted, auth)
        try:
            return _as_stream(response, offset)
        except BaseException:
            response.close()
            raise

    def post(self, url: str, form: Mapping[str, str]) -> bytes:
        """The body of the answer to a small form (token endpoints); raises TransferError."""
        if self.settings.offline:
            raise TransferError("the network is off", offline=True)
        response = self._request("POST", url, {}, None, form)
        try:
            if response.status_code != 200:
                raise _status_error(response)
            return _read(_as_stream(response, 0), PAGE_LIMIT)
        finally:
            response.close()

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        auth: requests.auth.AuthBase | tuple[str, str] | None,
        form: Mapping[str, str] | None = None,
    ) -> requests.Response:
        timeout = (self.settings.connect_timeout, self.settings.read_timeout)
        try:
            return self._session().request(
                method,
                url,
                headers=dict(headers),
                auth=auth,
                data=form,
                stream=True,
                timeout=timeout,
            )
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise explain(error) from None
        except ValueError as error:  # a URL or header that cannot be sent
            raise TransferError(f"the address cannot be used ({type(error).__name__})") from None

    def read(
        self,
        url: str,
        *,
        limit: int = PAGE_LIMIT,
        headers: Mapping[str, str] | None = None,
        authorization: str = "",
    ) -> Page:
        """A small body, with retries; more than `limit` bytes raise TransferError."""

        def once() -> Page:
            stream = self.open(url, headers=headers, authorization=authorization)
            try:
                body = _read(stream, limit)
            finally:
                stream.close()
            return Page(stream.url, stream.content_type, stream.headers, body)

        return self.retrying(once)

    def retrying(self, once: Callable[[], T]) -> T:
        """What `once` returns, called again after pauses while its error is transient."""
        for attempt in range(1, self.settings.attempts + 1):
            try:
                return once()
            except TransferError as error:
                if not error.transient or attempt == self.settings.attempts:
                    raise
                self.pause(attempt, error.pause)
        raise AssertionError("attempts is at least 1")

    def pause(self, attempt: int, asked: float = 0.0) -> None:
        """Waits before attempt `attempt` + 1; raises E-INTERRUPTED when cancelled meanwhile."""
        settings = self.settings
        delay = min(max(settings.backoff * 2 ** (attempt - 1), asked), settings.longest_pause)
        if settings.cancel.wait(delay):
            raise interrupted()


def interrupted() -> ReprobuildError:
    """What ends a transfer when the run is cancelled."""
    return ReprobuildError("E-INTERRUPTED", "interrupted while fetching")


def origin_of(url: str) -> str:
    """`scheme://host[:port]` in lower case, with the default port left out."""
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    default = {"http": 80, "https": 443}.get(scheme)
    try:
        port = parts.port
    except ValueError:
        port = None
    return f"{scheme}://{host}" + (f":{port}" if port not in (None, default) else "")


def file_path(url: str) -> Path:
    """The path that a file: URL names; raises TransferError for one on another host."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise TransferError("a file: address on another host cannot be read")
    path = unquote(parts.path)
    if "\0" in path or not path.startswith("/"):
        raise TransferError("not an absolute path")
    return Path(path)


def _open_file(url: str, offset: int) -> Stream:
    path = file_path(url)
    try:
        # O_NONBLOCK: a FIFO put there must not hang the open; it is refused right after.
        handle = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        raise TransferError(error.strerror or "cannot be read", missing=missing) from None
    status = os.fstat(handle.fileno())
    if not stat.S_ISREG(status.st_mode):
        handle.close()
        raise TransferError("is no regular file", missing=stat.S_ISDIR(status.st_mode))
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


def _as_stream(response: requests.Response, offset: int) -> Stream:
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
        raise _status_error(response)

    def chunks() -> Iterator[bytes]:
        got = start
        try:
            # The body as sent: a server that labels a .tar.gz as gzip-encoded must not unpack it.
            for piece in response.raw.stream(CHUNK, decode_content=False):
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
    )


def _read(stream: Stream, limit: int) -> bytes:
    parts, size = [], 0
    for piece in stream.chunks:
        size += len(piece)
        if size > limit:
            raise TransferError(f"more than {limit} bytes came")
        parts.append(piece)
    return b"".join(parts)


def _status_error(response: requests.Response) -> TransferError:
    code = response.status_code
    pause = 0.0
    with suppress(ValueError):
        pause = float(response.headers.get("Retry-After", "0"))
    return TransferError(
        f"HTTP status {code}" + (f" {_plain(response.reason)}" if response.reason else ""),
        transient=code in _TRANSIENT,
        missing=code in (404, 410),
        status=code,
        challenge=response.headers.get("WWW-Authenticate", ""),
        pause=pause if 0 <= pause < 1e9 else 0.0,
    )


def _plain(text: str) -> str:
    return "".join(c for c in text[:60] if c.isprintable())


def explain(error: BaseException) -> TransferError:
    """A library's error in words that hold no URL, header or secret."""
    if isinstance(error, TransferError):
        return error
    chain = list(_causes(error))
    if any(isinstance(e, requests.exceptions.TooManyRedirects) for e in chain):
        return TransferError("too many redirects")
    for cause in chain:
        if isinstance(cause, (urllib3.exceptions.SSLError, requests.exceptions.SSLError)):
            certificate = [e for e in chain if hasattr(e, "verify_message")]
            detail = f": {certificate[0].verify_message}" if certificate else ""
            return TransferError(f"the server's certificate is not accepted{detail}")
    if any(isinstance(e, _PROXY) for e in chain):
        return TransferError("the proxy cannot be reached or refuses", transient=True)
    if any(isinstance(e, socket.gaierror) for e in chain):
        return TransferError("the host's name cannot be resolved", transient=True)
    for cause in chain:  # before the timeouts: urllib3 calls a refused connection one, too
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return TransferError(f"the connection failed: {cause.strerror}", transient=True)
    if any(isinstance(e, _TIMEOUTS) for e in chain):
        return TransferError("no answer in time", transient=True)
    if any(isinstance(e, _UNUSABLE) for e in chain):
        return TransferError("the address cannot be used")
    return TransferError("the connection was cut", transient=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        item = waiting.pop(0)
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        waiting += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
