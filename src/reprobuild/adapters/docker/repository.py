"""One repository of a registry, to be written to: requests, logins, retries, redirects."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import requests

from reprobuild.adapters.fetch.http.errors import TransferError, explain, status_error
from reprobuild.adapters.fetch.http.session import Access, Authorization, Session
from reprobuild.adapters.fetch.ocireference import (
    DOCKER_HUB,
    ImageReference,
    is_private,
    registry_scheme,
)
from reprobuild.adapters.fetch.registry import docker_login

T = TypeVar("T")

TIMEOUT = (30, 300)
ATTEMPTS = 4
LONGEST_PAUSE = 60.0
MAX_REDIRECTS = 5
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class Repository:
    """`backoff` is the first pause between attempts, in seconds. Not for several threads."""

    def __init__(self, target: ImageReference, access: Access, backoff: float) -> None:
        self.target = target
        self.session = Session(access)
        self.backoff = backoff
        self.sources: Sequence[str] = ()
        """Other repositories of the registry that blobs may be mounted from."""
        self._authorization = ""
        host = "registry-1.docker.io" if target.host == DOCKER_HUB else target.host
        self.scheme = registry_scheme(host)
        self.base = f"{self.scheme}://{host}/v2/{target.repository}"

    def close(self) -> None:
        """Ends its connections."""
        self.session.close()

    def retrying(self, once: Callable[[], T]) -> T:
        """What `once` returns, called again after pauses while its error is transient."""
        for attempt in range(ATTEMPTS):
            try:
                return once()
            except TransferError as error:
                if not error.transient or attempt == ATTEMPTS - 1:
                    raise
                self.pause(attempt, error)
        raise AssertionError("there is a last attempt")

    def pause(self, attempt: int, error: TransferError) -> None:
        """Waits before the attempt after `attempt` (counted from 0)."""
        time.sleep(min(max(self.backoff * 2**attempt, error.pause), LONGEST_PAUSE))

    def ask(
        self,
        method: str,
        url: str,
        wanted: tuple[int, ...],
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> requests.Response:
        """One request; a challenge is answered once, redirects are followed with the same method.

        Other answers than `wanted` raise TransferError.
        """
        response = self._send(method, url, headers or {}, body)
        if response.status_code == 401:
            challenge = response.headers.get("WWW-Authenticate", "")
            self._authorization = self._answer(challenge)
            response = self._send(method, url, headers or {}, body)
        if response.status_code not in wanted:
            raise status_error(response)
        return response

    def place(self, response: requests.Response, near: str) -> str:
        """Where an answer says to go on; raises TransferError for an address that is not safe."""
        place = urljoin(near, response.headers.get("Location", ""))
        if urlsplit(place).scheme not in ("https", self.scheme):
            raise TransferError("the registry wants the upload at an address that is not https")
        return place

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> requests.Response:
        for _ in range(MAX_REDIRECTS):
            # An upload may be led to another host; only the registry is shown the token.
            own = urlsplit(url).netloc == urlsplit(self.base).netloc
            auth = Authorization(self._authorization) if own and self._authorization else None
            try:
                response = self.session.request(
                    method,
                    url,
                    headers=dict(headers),
                    auth=auth,
                    data=body,
                    timeout=TIMEOUT,
                    allow_redirects=method in ("GET", "HEAD"),
                )
            except (requests.RequestException, OSError) as error:
                raise explain(error) from None
            if response.status_code not in (307, 308) or method in ("GET", "HEAD"):
                return response
            url = self.place(response, url)
        raise TransferError("too many redirects")

    def _answer(self, challenge: str) -> str:
        """The Authorization header that a challenge asks for (docker's "token" page)."""
        scheme, _, rest = challenge.partition(" ")
        login = docker_login(self.target.host)
        pair = (login.username, login.password) if login.username else None
        if scheme.lower() == "basic" and pair:
            return "Basic " + b64encode(":".join(pair).encode()).decode()
        if scheme.lower() != "bearer":
            raise TransferError("it wants a login", status=401)
        parameters = dict(_PARAMETER.findall(rest))
        realm = parameters.get("realm", "")
        if not is_private(realm, self.target.host):
            raise TransferError("it sends logins to an address that is not https", status=401)
        scopes = [f"repository:{self.target.repository}:pull,push"]
        scopes += [f"repository:{name}:pull" for name in self.sources]
        query: dict[str, str | list[str]] = {"scope": scopes}
        if "service" in parameters:
            query["service"] = parameters["service"]
        try:
            if login.identity_token:
                form = {
                    **query,
                    "grant_type": "refresh_token",
                    "client_id": "reprobuild",
                    "refresh_token": login.identity_token,
                    "scope": " ".join(scopes),
                }
                response = self.session.post(
                    # Not led on: a redirect would take the token in the form along.
                    realm,
                    data=form,
                    timeout=TIMEOUT,
                    allow_redirects=False,
                )
            else:
                response = self.session.get(realm, params=query, auth=pair, timeout=TIMEOUT)
        except (requests.RequestException, OSError) as error:
            raise explain(error) from None
        if response.status_code != 200:
            raise status_error(response)
        try:
            document = json.loads(response.content)
            token = document.get("token") or document.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise TransferError("its token server gave no token", status=401)
        return f"Bearer {token}"
