"""The user's certificates, proxies and credentials, applied to each hop of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
import requests.adapters
import requests.auth
import urllib3

from reprobuild.adapters.fetch.http.errors import TransferError

_NO_LENGTH = "the answer's length is no number of bytes"
_LENGTH = re.compile(r"[0-9]{1,19}\Z")


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


class Authorization(requests.auth.AuthBase):
    """Sets one Authorization header; being there, it also keeps netrc from replacing it."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self.value
        return request


class _Adapter(requests.adapters.HTTPAdapter):
    """Refuses an answer whose length is none, before anything of it is read.

    Such a body would be waited for until the connection ends. Redirects and refusals are read by
    `requests` itself, so this is the only place that sees all answers.
    """

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            response = super().send(request, *args, **kwargs)
        except (urllib3.exceptions.InvalidHeader, requests.exceptions.InvalidHeader):
            raise TransferError(_NO_LENGTH) from None
        lengths = {part.strip() for part in response.headers.get("Content-Length", "").split(",")}
        if lengths != {""} and not (len(lengths) == 1 and _LENGTH.match(lengths.pop())):
            response.close()
            raise TransferError(_NO_LENGTH)
        return response


class Session(requests.Session):
    """Decides about certificates for each hop, and refuses to be led from https to http."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self.access = access
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Adapter())
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
