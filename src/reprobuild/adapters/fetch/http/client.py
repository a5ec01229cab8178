"""One place to open a URL: http, https and file, with retries."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import requests
import requests.auth
import urllib3

from reprobuild.adapters.fetch.http.errors import TransferError, explain, status_error, too_late
from reprobuild.adapters.fetch.http.session import Access, Authorization, Session, origin_of
from reprobuild.adapters.fetch.http.stream import Stream, as_stream, open_file, read_all
from reprobuild.adapters.fetch.redact import redact, split_credentials
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.errors import ReprobuildError

T = TypeVar("T")

PAGE_LIMIT = 128 * 2**20

_WORTH_A_WORD = 2.0
"""Seconds of a pause that a user should know of."""


@dataclass(frozen=True, slots=True)
class Page:
    """A small body, whole. `url` is where redirects ended."""

    url: str
    content_type: str
    headers: Mapping[str, str]
    body: bytes


class Http:
    """Opens URLs. Safe for several threads; each has its own connections."""

    def __init__(self, settings: FetchSettings, access: Access | None = None) -> None:
        self.settings = settings
        self._access = access or Access()
        self._local = threading.local()

    def _session(self) -> Session:
        session: Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = Session(self._access)
        return session

    def open(
        self,
        url: str,
        *,
        offset: int = 0,
        validator: str = "",
        headers: Mapping[str, str] | None = None,
        authorization: str = "",
        ends: float = math.inf,
    ) -> Stream:
        """Starts reading `url` at byte `offset` where the server can, else at 0 (see `start`).

        `validator` is an ETag: when the content changed since, reading starts at 0. `ends` is
        when the answer must have begun, by `time.monotonic`. Raises TransferError.
        """
        try:
            bare, credentials = split_credentials(url)
            scheme = urlsplit(bare).scheme.lower()
        except ValueError:
            raise TransferError("the address cannot be used") from None
        if scheme == "file":
            return open_file(bare, offset)
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
        auth = Authorization(authorization) if authorization else credentials
        if auth is None:
            auth = self._access.credentials.get(origin_of(bare))
        response = self._request("GET", bare, wanted, auth, ends=ends)
        try:
            return as_stream(response, offset)
        except BaseException:
            response.close()
            raise

    def post(self, url: str, form: Mapping[str, str]) -> bytes:
        """The body of the answer to a small form (token endpoints); raises TransferError.

        A redirect is not followed: it would take what is in the form along.
        """
        if self.settings.offline:
            raise TransferError("the network is off", offline=True)
        from reprobuild.adapters.fetch.pace import Pace

        ends = time.monotonic() + self.settings.answer_timeout
        response = self._request("POST", url, {}, None, form, ends)
        try:
            if response.status_code != 200:
                raise status_error(response)
            return read_all(as_stream(response, 0), PAGE_LIMIT, Pace(self.settings, ends).take)
        finally:
            response.close()

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        auth: requests.auth.AuthBase | tuple[str, str] | None,
        form: Mapping[str, str] | None = None,
        ends: float = math.inf,
    ) -> requests.Response:
        settings = self.settings
        left = ends - time.monotonic()
        if left <= 0:
            raise too_late(settings.answer_timeout)
        timeout = (min(settings.connect_timeout, left), min(settings.read_timeout, left))
        try:
            return self._session().request(
                method,
                url,
                headers=dict(headers),
                auth=auth,
                data=form,
                stream=True,
                timeout=timeout,
                allow_redirects=form is None,
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
        """A small body, with retries, within `answer_timeout`; more than `limit` bytes raise
        TransferError."""
        from reprobuild.adapters.fetch.pace import Pace

        ends = time.monotonic() + self.settings.answer_timeout

        def once() -> Page:
            stream = self.open(url, headers=headers, authorization=authorization, ends=ends)
            try:
                body = read_all(stream, limit, Pace(self.settings, ends).take)
            finally:
                stream.close()
            return Page(stream.url, stream.content_type, stream.headers, body)

        return self.retrying(url, once)

    def retrying(self, url: str, once: Callable[[], T]) -> T:
        """What `once` returns, called again after pauses while its error is transient.

        `url` is where it goes, for what is said of longer pauses.
        """
        for attempt in range(1, self.settings.attempts + 1):
            try:
                return once()
            except TransferError as error:
                if not error.transient or attempt == self.settings.attempts:
                    raise
                self.pause(attempt, url, error)
        raise AssertionError("attempts is at least 1")

    def pause(self, attempt: int, url: str, error: TransferError) -> None:
        """Waits before attempt `attempt` + 1; raises E-INTERRUPTED when cancelled meanwhile."""
        settings = self.settings
        delay = settings.backoff * 2 ** (attempt - 1)
        delay = min(max(delay, error.pause), settings.longest_pause)
        if delay >= _WORTH_A_WORD:
            again = f"again in {delay:g} s ({attempt + 1} of {settings.attempts} attempts)"
            settings.reporter.emit("note", text=f"{redact(url)}: {error.reason}; {again}")
        if settings.cancel.wait(delay):
            raise interrupted()


def interrupted() -> ReprobuildError:
    """What ends a transfer when the run is cancelled."""
    return ReprobuildError("E-INTERRUPTED", "interrupted while fetching")
