"""Reading from a container registry (OCI distribution specification 1.1).

Credentials are those of `docker login`: config.json, its helpers, identity tokens. `docker`
(docker-py) reads them here; none is ever shown.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import TransferError
from reprobuild.adapters.fetch.ocireference import DOCKER_HUB, is_private, registry_scheme
from reprobuild.adapters.fetch.wanted import Place, Wanted, unreachable
from reprobuild.ports import Reporter

MANIFEST_LIMIT = 8 * 2**20
ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_TOKEN_AGE = 120.0  # registries promise at least 60 s and usually give 300


@dataclass(frozen=True, slots=True)
class Login:
    """A user's credentials for one registry; empty where there are none."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        return "Login(…)"


def docker_login(host: str) -> Login:
    """What `docker login` (or `podman login`) left for the registry; raises TransferError."""
    from docker import auth, errors

    key = auth.INDEX_NAME if host == DOCKER_HUB else host
    for path in (None, _containers_auth()):
        if path is not None and not path.is_file():
            continue
        try:
            with warnings.catch_warnings():  # what it warns of is an error here
                warnings.simplefilter("ignore")
                found = auth.load_config(str(path) if path else None).resolve_authconfig(key)
        except (errors.DockerException, ValueError, OSError) as error:
            # The error's text may quote what the helper printed.
            raise TransferError(
                f"the credentials for {host} cannot be read ({type(error).__name__})"
            ) from None
        if found:
            lower = {name.lower(): value or "" for name, value in found.items()}
            return Login(
                lower.get("username", ""),
                lower.get("password", ""),
                lower.get("identitytoken", ""),
            )
    return Login()


def _containers_auth() -> Path:
    if "REGISTRY_AUTH_FILE" in os.environ:
        return Path(os.environ["REGISTRY_AUTH_FILE"])
    return Path(os.environ.get("XDG_RUNTIME_DIR", "/run/user/0")) / "containers" / "auth.json"


class RegistrySource:
    """One repository of one registry, as an `ImageSource`."""

    def __init__(self, downloads: Downloader, host: str, repository: str) -> None:
        self._downloads = downloads
        self._http = downloads.http
        self._host = host
        self._repository = repository
        api = "registry-1.docker.io" if host == DOCKER_HUB else host
        self._base = f"{registry_scheme(api)}://{api}/v2/{repository}"
        self._lock = threading.Lock()
        self._authorization = ""
        self._obtained = 0.0
        self._challenge = ""
        self._mirrored = False

    def manifest(self, reference: str) -> bytes:
        """The manifest or index of a tag or digest, unverified; raises TransferError."""
        url = f"{self._base}/manifests/{reference}"
        for mirror in self._downloads.settings.mirrors.candidates(url)[:-1]:
            try:
                body = self._http.read(
                    mirror, limit=MANIFEST_LIMIT, headers={"Accept": ACCEPT}
                ).body
            except TransferError:
                continue
            self._mirrored = True
            return body
        return self._authorized(url)

    def _authorized(self, url: str) -> bytes:
        headers = {"Accept": ACCEPT}
        try:
            return self._http.read(
                url, limit=MANIFEST_LIMIT, headers=headers, authorization=self._current()
            ).body
        except TransferError as error:
            if error.status != 401 or not error.challenge:
                raise
            with self._lock:
                self._challenge = error.challenge
                self._obtained = 0.0
        return self._http.read(
            url, limit=MANIFEST_LIMIT, headers=headers, authorization=self._current()
        ).body

    @contextmanager
    def blob(self, wanted: Wanted, report: Reporter) -> Iterator[Path]:
        """The verified blob as a file, for the `with` block. Raises as `Downloader.obtain`."""
        url = f"{self._base}/blobs/{wanted.sha256}"
        places = [Place(mirror) for mirror in self._downloads.settings.mirrors.candidates(url)]
        # Only the registry itself is shown the token.
        places[-1] = Place(url, self._token_for_blobs(wanted.name, url))
        with self._downloads.obtain(wanted, places, report) as path:
            yield path

    def _token_for_blobs(self, name: str, url: str) -> str:
        """The Authorization header; asks for a challenge where a mirror gave the manifest."""
        if self._mirrored and not self._challenge:
            self._mirrored = False
            try:
                self._http.read(self._base.partition("/v2/")[0] + "/v2/", limit=MANIFEST_LIMIT)
            except TransferError as error:  # without a challenge, the download says what is wrong
                with self._lock:
                    self._challenge = error.challenge if error.status == 401 else ""
        try:
            return self._current()
        except TransferError as error:
            raise unreachable(name, [(Place(url), error)]) from None

    def _current(self) -> str:
        """The Authorization header to send, renewed when it grew old; "" before any challenge."""
        with self._lock:
            if self._challenge and time.monotonic() - self._obtained > _TOKEN_AGE:
                self._authorization = self._answer(self._challenge)
                self._obtained = time.monotonic()
            return self._authorization

    def _answer(self, challenge: str) -> str:
        scheme, _, rest = challenge.partition(" ")
        login = docker_login(self._host)
        basic = _basic(login)
        if scheme.lower() == "basic":
            if not basic:
                raise TransferError(
                    f"{self._host} wants a login; run `docker login {self._host}`", status=401
                )
            return basic
        if scheme.lower() != "bearer":
            raise TransferError(f"{self._host} asks for an unknown kind of login", status=401)
        parameters = dict(_PARAMETER.findall(rest))
        return "Bearer " + self._token(parameters, login, basic)

    def _token(self, parameters: dict[str, str], login: Login, basic: str) -> str:
        """From the token server (distribution's "token" and "oauth2" pages)."""
        realm = parameters.get("realm", "")
        if not is_private(realm, self._host):
            raise TransferError(f"{self._host} sends its logins to an address that is not https")
        query = {"scope": f"repository:{self._repository}:pull"}
        if "service" in parameters:
            query["service"] = parameters["service"]
        if login.identity_token:
            body = self._http.post(
                realm,
                {
                    **query,
                    "grant_type": "refresh_token",
                    "client_id": "reprobuild",
                    "refresh_token": login.identity_token,
                },
            )
        else:
            joined = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(query)}"
            body = self._http.read(joined, limit=MANIFEST_LIMIT, authorization=basic).body
        try:
            document = json.loads(body)
            token = document.get("token") or document.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise TransferError(f"the token server of {self._host} gave no token")
        return token


def _basic(login: Login) -> str:
    if not login.username:
        return ""
    pair = f"{login.username}:{login.password}"
    return "Basic " + b64encode(pair.encode()).decode()
